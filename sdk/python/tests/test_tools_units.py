"""Tools as far as they need no server: schemas, arguments, answers."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Optional, Tuple, Union

import pytest
from typing_extensions import Annotated, TypedDict

from belljar import errors
from belljar._generated import api
from belljar._offer import Offer, failed
from belljar._schema import Tool


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: float = 0.0
    names: List[str] = field(default_factory=list)


class Options(TypedDict, total=False):
    deep: bool


def schema(hint: Any) -> Any:
    def function(value: Any) -> None: ...

    function.__annotations__["value"] = hint
    return Tool.of(function).schema["properties"]["value"]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (Any, {}),
        (List[int], {"type": "array", "items": {"type": "integer"}}),
        (Dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
        (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),
        (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (Colour, {"enum": ["red", "blue"]}),
        (Tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
        (Annotated[int, "how many"], {"type": "integer", "description": "how many"}),
        (
            Options,
            {
                "type": "object",
                "properties": {"deep": {"type": "boolean"}},
                "required": [],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_hints_become_schemas(hint: Any, expected: Any) -> None:
    assert schema(hint) == expected


def test_a_function_is_described_by_its_signature() -> None:
    def search(query: str, limit: int = 10, where: Optional[Point] = None) -> List[str]:
        """Looks for things."""
        return [query] * limit

    tool = Tool.of(search)
    assert (tool.name, tool.description) == ("search", "Looks for things.")
    assert tool.schema["required"] == ["query"]
    assert tool.schema["properties"]["limit"] == {"type": "integer", "default": 10}
    assert tool.schema["additionalProperties"] is False
    assert json.loads(tool.declaration().input_schema) == tool.schema


def test_arguments_become_what_the_hints_say() -> None:
    def function(point: Point, points: List[Point], colour: Colour, maybe: Optional[Point], ratio: float) -> None: ...

    text = json.dumps(
        {"point": {"x": 1}, "points": [{"x": 2, "y": 3.5}], "colour": "blue", "maybe": {"x": 4}, "ratio": 2}
    )
    arguments = Tool.of(function).arguments(text)
    assert arguments["point"] == Point(1)
    assert arguments["points"] == [Point(2, 3.5)]
    assert arguments["colour"] is Colour.BLUE
    assert arguments["maybe"] == Point(4)
    assert isinstance(arguments["ratio"], float)


def test_results_become_json() -> None:
    assert json.loads(Tool.result([Point(1), Colour.RED, {3, 1}])) == [{"x": 1, "y": 0.0, "names": []}, "red", [1, 3]]
    with pytest.raises(TypeError):
        Tool.result(object())
    with pytest.raises(ValueError, match="JSON"):
        Tool.result(float("nan"))


def test_what_cannot_be_a_tool_is_refused_with_the_parameter() -> None:
    def positional(a: int, /) -> None: ...

    def strange(a: bytes) -> None: ...

    with pytest.raises(errors.InvalidArgument, match="`a`"):
        Tool.of(positional)
    with pytest.raises(errors.InvalidArgument, match=r"strange\.a"):
        Tool.of(strange)
    with pytest.raises(errors.InvalidArgument, match="name"):
        Tool.of(lambda: None)


def test_an_unknown_tool_and_a_failure_are_told() -> None:
    call = api.CallbackCall(call_id=7, tool=api.ToolCall(name="absent", arguments="{}"))
    with pytest.raises(errors.InvalidArgument):
        Offer().question(call)
    answer = failed(call, TypeError("no"))
    assert (answer.call_id, answer.tool_error.message) == (7, "TypeError: no")
