"""The words of the provider interface: sessions of agents, and executions in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from belljar._generated.codes import PolicyDenied, SandboxNotFound, SnapshotNotFound


class SessionStatus(str, Enum):
    """Where a session is in its life."""

    PROVISIONING = "provisioning"
    READY = "ready"
    EXECUTING = "executing"
    DESTROYING = "destroying"
    DESTROYED = "destroyed"
    FAILED = "failed"


class ExecutionStatus(str, Enum):
    """Where an execution is."""

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    CANCELLED = "cancelled"
    FAILED = "failed"


@dataclass
class SandboxConfig:
    """What a session is to be like.

    input_dir appears as `/input`, read-only; output_dir as `/output`. runtime: `gvisor` or `kata`, as the weakest wall
    that is acceptable.
    """

    timeout_seconds: float = 60.0
    memory_mb: int = 512
    cpu_limit: float = 1.0
    network_enabled: bool = False
    read_only_fs: bool = True
    env_vars: dict[str, str] = field(default_factory=dict)
    input_dir: str | None = None
    output_dir: str | None = None
    runtime: str | None = None
    output_max_bytes: int = 1_048_576


@dataclass
class SandboxResult:
    """What came of an execution."""

    success: bool
    exit_code: int = 0
    stdout: str = ""
    stderr: str = ""
    duration_seconds: float = 0.0
    killed: bool = False
    kill_reason: str = ""


@dataclass
class SessionHandle:
    """Names a session. Its id is that of the sandbox."""

    agent_id: str
    session_id: str
    status: SessionStatus = SessionStatus.READY


@dataclass
class ExecutionHandle:
    """Names an execution. Its id is that of the process."""

    execution_id: str
    agent_id: str
    session_id: str
    status: ExecutionStatus = ExecutionStatus.COMPLETED
    result: SandboxResult | None = None


@dataclass
class Checkpoint:
    """The kept files of an agent's session. created_at: in ISO 8601."""

    agent_id: str
    name: str
    snapshot_id: str
    created_at: str


class ExecutionDenied(PolicyDenied, PermissionError):
    """The policy of the session denies this; the message names the rule."""


class NoSession(SandboxNotFound, RuntimeError):
    """There is no such session of this agent."""


class NoCheckpoint(SnapshotNotFound, RuntimeError):
    """There is no such checkpoint of this agent."""
