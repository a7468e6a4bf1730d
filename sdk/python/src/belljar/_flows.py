"""What is told about a sandbox's network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from belljar._generated import api
from belljar._models import moment, present


@dataclass(frozen=True)
class NetworkInfo:
    """What a sandbox may reach. ask: seconds that what nothing allows waits for somebody to allow it.

    callback_connections, callback_requests: whether functions of a client decide about those.
    """

    mode: str
    allow: Sequence[str]
    deny: Sequence[str]
    cidrs: Sequence[str]
    ask: float | None
    callback_connections: bool
    callback_requests: bool
    enforcement: str
    open: int | None

    @classmethod
    def of(cls, message: api.SandboxNetwork) -> NetworkInfo:
        return cls(
            mode=message.mode,
            allow=tuple(message.allow),
            deny=tuple(message.deny),
            cidrs=tuple(message.cidrs),
            ask=present(message, "ask_secs"),
            callback_connections=message.callback_connections,
            callback_requests=message.callback_requests,
            enforcement=message.enforcement,
            open=present(message, "open"),
        )


@dataclass(frozen=True)
class NetworkDecision:
    """One decision and what came of it. stage: `flow`, `dns` or `request`; verdict: `allow` or `deny`.

    pid, program, process_id: which process in the sandbox made the connection, where that is known. A hint: programs
    choose their names.
    """

    at: datetime | None
    stage: str
    transport: str
    host: str | None
    address: str | None
    port: int
    sni: str | None
    method: str | None
    path: str | None
    rule: str | None
    verdict: str
    reason: str
    bytes_up: int
    bytes_down: int
    duration: float
    pid: int | None
    program: str | None
    process_id: str | None

    @classmethod
    def of(cls, message: api.NetworkDecision) -> NetworkDecision:
        return cls(
            at=moment(message, "at"),
            stage=message.stage,
            transport=message.transport,
            host=present(message, "host"),
            address=present(message, "address"),
            port=message.port,
            sni=present(message, "sni"),
            method=present(message, "method"),
            path=present(message, "path"),
            rule=present(message, "rule"),
            verdict=message.verdict,
            reason=message.reason,
            bytes_up=message.bytes_up,
            bytes_down=message.bytes_down,
            duration=message.duration_ms / 1000,
            pid=present(message, "pid"),
            program=present(message, "program"),
            process_id=present(message, "process_id"),
        )


@dataclass(frozen=True)
class Approval:
    """Something that waits to be allowed."""

    id: str
    sandbox_id: str
    host: str
    address: str | None
    port: int
    transport: str
    method: str | None
    path: str | None
    rule: str | None
    asked_at: datetime | None
    until: datetime | None

    @classmethod
    def of(cls, message: api.Approval) -> Approval:
        return cls(
            id=message.approval_id,
            sandbox_id=message.sandbox_id,
            host=message.host,
            address=present(message, "address"),
            port=message.port,
            transport=message.transport,
            method=present(message, "method"),
            path=present(message, "path"),
            rule=present(message, "rule"),
            asked_at=moment(message, "asked_at"),
            until=moment(message, "until"),
        )
