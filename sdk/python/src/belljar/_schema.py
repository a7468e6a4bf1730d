"""Functions as tools: JSON Schema from type hints, arguments from JSON, results to JSON."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import json
import types
import typing
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from typing import Any, Callable, Union, get_args, get_origin

import typing_extensions

from belljar._generated import api
from belljar._generated.codes import InvalidArgument

PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    None: {"type": "null"},
    Any: {},
    object: {},
    inspect.Parameter.empty: {},
    dict: {"type": "object"},
    list: {"type": "array"},
    tuple: {"type": "array"},
}
UNIONS = (Union, getattr(types, "UnionType", Union))
ARRAYS = (list, tuple, set, frozenset, Sequence, Iterable)
MAPS = (dict, Mapping, MutableMapping)


@dataclasses.dataclass(frozen=True)
class Tool:
    """A function, and what is told about it."""

    name: str
    function: Callable[..., Any]
    description: str
    schema: Mapping[str, Any]
    hints: Mapping[str, Any]

    @classmethod
    def of(cls, function: Callable[..., Any], name: str | None = None, description: str | None = None) -> Tool:
        name = name or getattr(function, "__name__", "")
        if not name or name == "<lambda>":
            raise InvalidArgument("a tool has no name", remedy="give `name`, or a function that has one")
        text = description if description is not None else inspect.getdoc(function) or ""
        # A `partial` or an object with `__call__` has its hints elsewhere; without hints anything goes.
        hinted = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
        try:
            hints = typing_extensions.get_type_hints(hinted, include_extras=True)
        except (NameError, TypeError) as error:
            raise InvalidArgument(f"the type hints of tool `{name}` cannot be read", cause=str(error)) from error
        try:
            parameters = inspect.signature(function).parameters
        except ValueError as error:
            raise InvalidArgument(f"the parameters of tool `{name}` cannot be read", cause=str(error)) from error
        return cls(name, function, text, _of_parameters(name, parameters, hints), hints)

    def declaration(self) -> api.ToolDeclaration:
        return api.ToolDeclaration(
            name=self.name, description=self.description, input_schema=json.dumps(self.schema, separators=(",", ":"))
        )

    def arguments(self, text: str) -> dict[str, Any]:
        """What the function is called with. The server has held it against the schema."""
        return {name: value_of(self.hints.get(name, Any), value) for name, value in json.loads(text).items()}

    @staticmethod
    def result(value: Any) -> str:
        return json.dumps(value, default=_plain, allow_nan=False)


def _of_parameters(tool: str, parameters: Mapping[str, inspect.Parameter], hints: Mapping[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = {}
    schema: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    required = []
    for name, parameter in parameters.items():
        if parameter.kind is parameter.VAR_KEYWORD:
            schema["additionalProperties"] = True
            continue
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise InvalidArgument(
                f"tool `{tool}` takes `{name}` without a name", remedy="tools are called with named arguments"
            )
        properties[name] = of_hint(hints.get(name, Any), f"{tool}.{name}")
        if parameter.default is parameter.empty:
            required.append(name)
        elif isinstance(parameter.default, (str, int, float, bool)):
            properties[name] = {**properties[name], "default": parameter.default}
    if required:
        schema["required"] = required
    return schema


def of_hint(hint: Any, where: str) -> dict[str, Any]:
    """The schema of a type."""
    try:
        if hint in PLAIN:
            return dict(PLAIN[hint])
    except TypeError:
        # Not hashable, such as a `Literal` of lists.
        pass
    origin, inner = get_origin(hint), get_args(hint)
    if origin is typing_extensions.Annotated:
        schema = of_hint(inner[0], where)
        texts = [extra for extra in inner[1:] if isinstance(extra, str)]
        return {**schema, "description": texts[0]} if texts else schema
    if origin in UNIONS:
        return {"anyOf": [of_hint(choice, where) for choice in inner]}
    if origin in (typing.Literal, typing_extensions.Literal):
        return {"enum": list(inner)}
    if origin is tuple and inner and inner[-1] is not Ellipsis:
        items = [of_hint(item, where) for item in inner]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if origin in ARRAYS:
        return {"type": "array", "items": of_hint(inner[0], where)} if inner else {"type": "array"}
    if origin in MAPS:
        return {"type": "object", "additionalProperties": of_hint(inner[1], where)} if inner else {"type": "object"}
    if isinstance(hint, type):
        return _of_class(hint, where)
    raise InvalidArgument(
        f"`{where}` has a type that JSON has not: {hint!r}",
        remedy="use text, numbers, lists, dictionaries, `Optional`, `Literal`, enumerations or data classes",
    )


def _of_class(kind: type, where: str) -> dict[str, Any]:
    if issubclass(kind, enum.Enum):
        return {"enum": [member.value for member in kind]}
    if hasattr(kind, "model_json_schema"):
        schema: dict[str, Any] = kind.model_json_schema()
        return schema
    if dataclasses.is_dataclass(kind):
        fields = dataclasses.fields(kind)
        missing = dataclasses.MISSING
        required = [field.name for field in fields if field.default is missing and field.default_factory is missing]
        return _of_members(kind, required, where)
    if typing_extensions.is_typeddict(kind):
        return _of_members(kind, sorted(getattr(kind, "__required_keys__", ())), where)
    raise InvalidArgument(
        f"`{where}` has a type that JSON has not: {kind.__name__}", remedy="use a data class, or plain types"
    )


def _of_members(kind: type, required: Sequence[str], where: str) -> dict[str, Any]:
    hints = typing_extensions.get_type_hints(kind, include_extras=True)
    properties = {name: of_hint(hint, f"{where}.{name}") for name, hint in hints.items()}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def value_of(hint: Any, value: Any) -> Any:
    """A value of the type that a hint names, from JSON."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin is typing_extensions.Annotated:
        return value_of(inner[0], value)
    if origin in UNIONS:
        # Where a class is among the choices, an object is meant for it.
        classes = [choice for choice in inner if isinstance(choice, type) and choice not in PLAIN]
        return value_of(classes[0], value) if len(classes) == 1 and value is not None else value
    if isinstance(value, list) and origin in ARRAYS and inner:
        items = [value_of(inner[0], item) for item in value]
        return origin(items) if origin in (tuple, set, frozenset) else items
    if isinstance(value, dict) and origin in MAPS and inner:
        return {key: value_of(inner[1], item) for key, item in value.items()}
    if isinstance(hint, type):
        if issubclass(hint, enum.Enum):
            return hint(value)
        if hasattr(hint, "model_validate"):
            return hint.model_validate(value)
        if dataclasses.is_dataclass(hint) and isinstance(value, dict):
            hints = typing_extensions.get_type_hints(hint, include_extras=True)
            return hint(**{name: value_of(hints.get(name, Any), item) for name, item in value.items()})
        if hint is float and isinstance(value, int):
            return float(value)
    return value


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (set, frozenset)):
        return sorted(value)
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    raise TypeError(f"a tool answered with {type(value).__name__}, which JSON has not")
