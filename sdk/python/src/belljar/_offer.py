"""What a client answers for in a sandbox's name: tools, connections, requests, secrets. The same for both clients."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, Optional, Union

from belljar._decisions import Connection, Request, RequestVerdict, Verdict
from belljar._generated import api
from belljar._generated.codes import InvalidArgument
from belljar._schema import Tool

OnConnection = Callable[[Connection], Union[Optional[Verdict], Awaitable[Optional[Verdict]]]]
OnRequest = Callable[[Request], Union[Optional[RequestVerdict], Awaitable[Optional[RequestVerdict]]]]
# A value, or what gives it; asked for anew with each request that gets it.
Secrets = Mapping[str, Union[str, Callable[[], Union[str, Awaitable[str]]]]]
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
    on_connection: OnConnection | None = None
    on_request: OnRequest | None = None
    secrets: dict[str, str | Callable[[], str | Awaitable[str]]] = field(default_factory=dict)

    def copy(self) -> Offer:
        return Offer(dict(self.tools), self.on_connection, self.on_request, dict(self.secrets))

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
                decides_connections=self.on_connection is not None,
                handles_requests=self.on_request is not None,
                secrets=list(self.secrets),
            )
        )

    def question(self, call: api.CallbackCall) -> Question:
        if call.HasField("tool") and call.tool.name in self.tools:
            tool = self.tools[call.tool.name]
            return Question(
                tool.function, (), tool.arguments(call.tool.arguments), lambda value: _told(call, tool, value)
            )
        if call.HasField("connection") and self.on_connection is not None:
            return Question(
                self.on_connection, (Connection.of(call.connection),), {}, lambda value: _judged(call, value)
            )
        if call.HasField("request") and self.on_request is not None:
            return Question(self.on_request, (Request.of(call.request),), {}, lambda value: _passed(call, value))
        if call.HasField("secret") and call.secret.name in self.secrets:
            given = self.secrets[call.secret.name]
            function = (lambda: given) if isinstance(given, str) else given
            return Question(function, (), {}, lambda value: _given(call, value))
        raise InvalidArgument("nobody answers for this")


def _told(call: api.CallbackCall, tool: Tool, value: Any) -> api.CallbackAnswer:
    return api.CallbackAnswer(call_id=call.call_id, tool_result=api.ToolResult(json=tool.result(value)))


def _judged(call: api.CallbackCall, value: Any) -> api.CallbackAnswer:
    if value is None:
        value = Verdict(False, "there was no answer")
    if not isinstance(value, Verdict):
        raise TypeError("`on_connection` answered with something else than a verdict")
    return api.CallbackAnswer(call_id=call.call_id, connection=value.to_wire())


def _passed(call: api.CallbackCall, value: Any) -> api.CallbackAnswer:
    if value is None:
        value = RequestVerdict(False, "there was no answer")
    if not isinstance(value, RequestVerdict):
        raise TypeError("`on_request` answered with something else than a verdict")
    return api.CallbackAnswer(call_id=call.call_id, request=value.to_wire())


def _given(call: api.CallbackCall, value: Any) -> api.CallbackAnswer:
    if not isinstance(value, str):
        raise TypeError("a secret is a text")
    return api.CallbackAnswer(call_id=call.call_id, secret=api.SecretResult(value=value))


def failed(call: api.CallbackCall, error: BaseException) -> api.CallbackAnswer:
    """The answer where a function failed: an error for who called a tool, a denial for everything else."""
    text = f"{type(error).__name__}: {error}"[:MAX_MESSAGE]
    return api.CallbackAnswer(call_id=call.call_id, tool_error=api.ToolError(message=text))
