"""Tools and decisions as far as they need no server: schemas, arguments, answers."""

from __future__ import annotations

import enum
import json
from dataclasses import dataclass, field
from typing import Any, Dict, List, Literal, Optional, Tuple, Union

import pytest
from typing_extensions import Annotated, TypedDict

from belljar import Endpoint, errors
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


def test_the_kinds_of_addresses() -> None:
    def kinds(ip: str) -> set[str]:
        endpoint = Endpoint(ip, 1)
        names = (
            "loopback",
            "private",
            "link_local",
            "multicast",
            "broadcast",
            "documentation",
            "reserved",
            "public_internet",
        )
        return {name for name in names if getattr(endpoint, f"is_{name}")}

    for ip, kind in {
        "127.0.0.1": "loopback",
        "::1": "loopback",
        "::ffff:127.0.0.1": "loopback",
        "10.1.2.3": "private",
        "172.31.255.255": "private",
        "172.32.0.1": "public_internet",
        "100.64.0.1": "private",
        "fd00::1": "private",
        "::ffff:192.168.1.1": "private",
        "169.254.169.254": "link_local",
        "fe80::1": "link_local",
        "224.0.0.1": "multicast",
        "ff02::1": "multicast",
        "255.255.255.255": "broadcast",
        "203.0.113.9": "documentation",
        "2001:db8::1": "documentation",
        "0.0.0.0": "reserved",
        "240.0.0.1": "reserved",
        "198.18.0.1": "reserved",
        "::": "reserved",
        "64:ff9b::a00:1": "reserved",
        "2002:7f00:1::": "reserved",
        "4000::1": "reserved",
        "8.8.8.8": "public_internet",
        "2606:4700::1111": "public_internet",
    }.items():
        assert kinds(ip) == {kind}, ip
    assert kinds("") == kinds("nonsense") == set()


def test_no_answer_and_a_wrong_one_deny() -> None:
    call = api.CallbackCall(call_id=7, connection=api.ConnectionCall(transport="tcp", host="x.example"))
    offer = Offer(on_connection=lambda connection: connection.accept(scope="sandbox"))
    question = offer.question(call)
    answer = question.answer(question.function(*question.arguments))
    assert (answer.call_id, answer.connection.allow, answer.connection.scope) == (7, True, 2)
    assert not question.answer(None).connection.allow
    with pytest.raises(TypeError):
        question.answer(True)
    assert failed(call, TypeError("no")).tool_error.message == "TypeError: no"
    with pytest.raises(errors.InvalidArgument):
        Offer().question(call)


def test_headers_are_set_and_removed() -> None:
    headers = [api.HttpHeader(name="accept", value="x")]
    call = api.CallbackCall(call_id=1, request=api.RequestCall(method="GET", url="https://x.example/", headers=headers))
    question = Offer(on_request=lambda request: request.accept({"Authorization": "secret"})).question(call)
    request = question.arguments[0]
    assert request.header("Accept") == "x"
    request.remove_header("Cookie")
    verdict = question.answer(question.function(request)).request
    assert [(header.name, header.value) for header in verdict.set_headers] == [("authorization", "secret")]
    assert list(verdict.remove_headers) == ["cookie"]
    assert question.answer(request.deny("no")).request.reason == "no"
