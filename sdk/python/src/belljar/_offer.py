"""What a client answers for in a sandbox's name: its tools. The same for both clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Union

from belljar._generated import api
from belljar._generated.codes import InvalidArgument
from belljar._schema import Tool

Tools = Union[Mapping[str, Callable[..., Any]], Sequence[Callable[..., Any]]]

# What is told of an exception.
MAX_MESSAGE = 2000


@dataclass(frozen=True)
class Question:
    """A function to be called, and how its value becomes an answer."""

    function: Callable[..., Any]
    arguments: Sequence[Any]
    named: Mapping[str, Any]
    answer: Callable[[Any], api.CallbackAnswer]


@dataclass
class Offer:
    tools: dict[str, Tool] = field(default_factory=dict)

    def copy(self) -> Offer:
        return Offer(dict(self.tools))

    def add(self, tools: Tools) -> None:
        if isinstance(tools, Mapping):
            made = [Tool.of(function, name) for name, function in tools.items()]
        else:
            made = [Tool.of(function) for function in tools]
        self.tools.update((tool.name, tool) for tool in made)

    def hello(self, sandbox_id: str) -> api.ClientCallback:
        return api.ClientCallback(
            hello=api.CallbackHello(
                sandbox_id=sandbox_id,
                tools=[tool.declaration() for tool in self.tools.values()],
            )
        )

    def question(self, call: api.CallbackCall) -> Question:
        if call.HasField("tool") and call.tool.name in self.tools:
            tool = self.tools[call.tool.name]
            return Question(
                tool.function, (), tool.arguments(call.tool.arguments), lambda value: _told(call, tool, value)
            )
        raise InvalidArgument("nobody answers for this")


def _told(call: api.CallbackCall, tool: Tool, value: Any) -> api.CallbackAnswer:
    return api.CallbackAnswer(call_id=call.call_id, tool_result=api.ToolResult(json=tool.result(value)))


def failed(call: api.CallbackCall, error: BaseException) -> api.CallbackAnswer:
    """The answer where a function failed: an error for who called."""
    text = f"{type(error).__name__}: {error}"[:MAX_MESSAGE]
    return api.CallbackAnswer(call_id=call.call_id, tool_error=api.ToolError(message=text))
