"""What comes of commands: processes, their output, and how they ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from belljar._failure import BelljarError
from belljar._generated import api
from belljar._generated.codes import Oom, TimedOut
from belljar._models import moment, present


@dataclass(frozen=True)
class Usage:
    """What a command used."""

    user_seconds: float = 0.0
    system_seconds: float = 0.0
    peak_memory_bytes: int = 0
    read_bytes: int = 0
    written_bytes: int = 0

    @classmethod
    def of(cls, message: api.Usage) -> Usage:
        return cls(
            message.user_secs, message.system_secs, message.peak_memory_bytes, message.read_bytes, message.written_bytes
        )


@dataclass(frozen=True)
class Artifact:
    """A file that a command left in `/output`."""

    path: str
    mime_type: str
    bytes: int


@dataclass(frozen=True)
class Finding:
    """A place in Python code that a reader would look at twice. A hint: code that wants to hide from the scan can.

    rule: `shell`, `dynamic-code`, `dynamic-import`, `native-code`, `computed-name`, `syntax-error` or `not-scanned`.
    name: what is behind any alias, such as `os.system`. Lines and columns are counted from one.
    """

    line: int
    column: int
    rule: str
    name: str

    @classmethod
    def all(cls, messages: Iterable[api.Finding]) -> Sequence[Finding]:
        return tuple(cls(found.line, found.column, found.rule, found.name) for found in messages)


@dataclass(frozen=True)
class Result:
    """How a command ended, with what it wrote.

    reason: `exited`, `signalled`, `timed_out`, `oom`, `cancelled` or `lost`. The exit code is as a shell reports it;
    124 after a time-out. Output beyond the limit is left out here and is all in the process's log.
    """

    exit_code: int
    stdout_bytes: bytes
    stderr_bytes: bytes
    reason: str
    timed_out: bool
    duration: float
    usage: Usage
    process_id: str
    sandbox_id: str
    limits_hit: Sequence[str] = ()
    stdout_truncated: bool = False
    stderr_truncated: bool = False
    stripped_environment: Sequence[str] = ()
    artifacts: Sequence[Artifact] = ()
    findings: Sequence[Finding] = ()

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.reason == "exited"

    def check(self) -> Result:
        """Itself, or `CommandFailed` where the command did not succeed."""
        if self.ok:
            return self
        kinds: dict[str, type[CommandFailed]] = {
            "timed_out": CommandTimedOut,
            "oom": CommandOutOfMemory,
            "cancelled": CommandCancelled,
        }
        raise kinds.get(self.reason, CommandFailed)(self)

    @classmethod
    def of(cls, message: api.ExecResponse) -> Result:
        return cls(
            exit_code=message.exit_code,
            stdout_bytes=message.stdout,
            stderr_bytes=message.stderr,
            reason=api.REASON_WORDS[message.reason],
            timed_out=message.timed_out,
            duration=message.duration_ms / 1000,
            usage=Usage.of(message.usage),
            process_id=message.process_id,
            sandbox_id=message.sandbox_id,
            limits_hit=tuple(message.limits_hit),
            stdout_truncated=message.stdout_truncated,
            stderr_truncated=message.stderr_truncated,
            stripped_environment=tuple(message.stripped_environment),
            artifacts=tuple(Artifact(file.path, file.mime_type, file.bytes) for file in message.artifacts),
            findings=Finding.all(message.findings),
        )


class CommandFailed(BelljarError):
    """A command ended with something else than success, and `check` asked for success."""

    code = "command-failed"

    def __init__(self, result: Result) -> None:
        last = result.stderr.strip().splitlines()[-1:] or [""]
        super().__init__(f"the command ended with exit code {result.exit_code} ({result.reason})", cause=last[0])
        self.result = result


class CommandTimedOut(CommandFailed, TimedOut):
    """The command ran longer than its timeout."""

    code = TimedOut.code


class CommandOutOfMemory(CommandFailed, Oom):
    """The command was killed because the sandbox's memory ran out."""

    code = Oom.code


class CommandCancelled(CommandFailed):
    """Somebody cancelled the command."""

    code = "cancelled"


@dataclass(frozen=True)
class Offsets:
    """One offset per channel, counted in bytes from the start of the process."""

    stdout: int = 0
    stderr: int = 0

    def to_wire(self) -> api.Offsets:
        return api.Offsets(stdout=self.stdout, stderr=self.stderr)

    def past(self, output: Output) -> Offsets:
        """Where to go on after `output`."""
        end = output.offset + len(output.data)
        return Offsets(end, self.stderr) if output.channel == "stdout" else Offsets(self.stdout, end)


@dataclass(frozen=True)
class Output:
    """A piece of what a process wrote. `channel` is `stdout` or `stderr`; `offset` is that of the first byte."""

    channel: str
    offset: int
    data: bytes

    @property
    def text(self) -> str:
        return self.data.decode("utf-8", "replace")

    @classmethod
    def of(cls, message: api.ProcessOutput) -> Output:
        return cls(api.CHANNEL_WORDS[message.channel], message.offset, message.data)


@dataclass(frozen=True)
class Logs:
    """What a process wrote from some offset to `end`, where the next look can go on."""

    stdout_bytes: bytes
    stderr_bytes: bytes
    end: Offsets

    @property
    def stdout(self) -> str:
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        return self.stderr_bytes.decode("utf-8", "replace")


@dataclass(frozen=True)
class ProcessInfo:
    """A process as it was recorded when it was last asked for.

    status: `starting`, `running`, `succeeded`, `failed`, `cancelled` or `lost`.
    """

    id: str
    sandbox_id: str
    status: str
    command: str
    exit_code: int | None
    reason: str | None
    timed_out: bool
    started_at: datetime | None
    finished_at: datetime | None
    expires_at: datetime | None
    pid: int | None
    usage: Usage | None
    duration: float | None
    timeout: float | None
    terminal: bool
    limits_hit: Sequence[str]
    log_start: Offsets
    log_end: Offsets
    stripped_environment: Sequence[str]
    tenant: str
    findings: Sequence[Finding] = ()

    @property
    def ended(self) -> bool:
        return self.status not in ("starting", "running")

    @classmethod
    def of(cls, message: api.Process) -> ProcessInfo:
        duration: Any = present(message, "duration_ms")
        return cls(
            id=message.process_id,
            sandbox_id=message.sandbox_id,
            status=api.PROCESS_STATUS_WORDS[message.status],
            command=message.command,
            exit_code=present(message, "exit_code"),
            reason=api.REASON_WORDS[message.reason] if message.HasField("reason") else None,
            timed_out=message.timed_out,
            started_at=moment(message, "started_at"),
            finished_at=moment(message, "finished_at"),
            expires_at=moment(message, "expires_at"),
            pid=present(message, "pid"),
            usage=Usage.of(message.usage) if message.HasField("usage") else None,
            duration=None if duration is None else duration / 1000,
            timeout=present(message, "timeout_secs"),
            terminal=message.terminal,
            limits_hit=tuple(message.limits_hit),
            log_start=Offsets(message.log_start.stdout, message.log_start.stderr),
            log_end=Offsets(message.log_end.stdout, message.log_end.stderr),
            stripped_environment=tuple(message.stripped_environment),
            tenant=message.tenant,
            findings=Finding.all(message.findings),
        )
