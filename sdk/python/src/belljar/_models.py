"""What the server tells, as plain values. Times are aware `datetime`s in UTC; durations are seconds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from belljar._generated import api

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp


def moment(message: Any, name: str) -> datetime | None:
    """A time, or `None` where the message has none."""
    if not message.HasField(name):
        return None
    value: Timestamp = getattr(message, name)
    return datetime.fromtimestamp(value.seconds + value.nanos / 1e9, tz=timezone.utc)


def stamp(given: datetime | None) -> Timestamp | None:
    """A time as messages have it. One without a zone is local."""
    from google.protobuf.timestamp_pb2 import Timestamp

    if given is None:
        return None
    value = Timestamp()
    value.FromDatetime(given.astimezone(timezone.utc))
    return value


def present(message: Any, name: str) -> Any:
    """A field, or `None` where it is absent."""
    return getattr(message, name) if message.HasField(name) else None


@dataclass(frozen=True)
class Enforcement:
    """A rule and what holds it."""

    subject: str
    rule: str
    mechanism: str
    full: bool


@dataclass(frozen=True)
class Isolation:
    """The wall of a sandbox."""

    backend: str
    runtime: str | None
    isolation_class: str
    network_mode: str
    network_enforcement: str
    writable_paths: Sequence[str]
    timeout: int


@dataclass(frozen=True)
class Limits:
    """What a sandbox may use. Sizes are bytes, or text such as `512M` and `2GiB`; absent: the default."""

    memory: int | str | None = None
    cpus: float | None = None
    pids: int | None = None
    disk: int | str | None = None


@dataclass(frozen=True)
class Workspace:
    """A directory of the server's host as `/workspace`. `mode`: `overlay` (the default), `bind` or `bind-ro`."""

    path: str
    mode: str | None = None


@dataclass(frozen=True)
class SandboxPolicy:
    """What a sandbox runs under, for its whole life. recording: everything is permitted and put on record."""

    name: str
    version: int | None
    digest: str
    recording: bool


@dataclass(frozen=True)
class PolicyInfo:
    """One version of a policy that the server keeps; `effective` is what its documents say together, as YAML."""

    name: str
    version: int
    digest: str
    created_at: datetime | None
    tenant: str
    effective: str

    @classmethod
    def of(cls, message: api.Policy) -> PolicyInfo:
        return cls(
            name=message.name,
            version=message.version,
            digest=message.digest,
            created_at=moment(message, "created_at"),
            tenant=message.tenant,
            effective=message.effective,
        )


@dataclass(frozen=True)
class SandboxInfo:
    """A sandbox as it was recorded when it was last asked for."""

    id: str
    name: str | None
    template: str
    backend: str
    state: str
    created_at: datetime | None
    expires_at: datetime | None
    used_at: datetime | None
    isolation: Isolation
    failure: str | None
    tenant: str
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    limits: Limits
    idle_timeout: float
    lease: float
    enforcement: Sequence[Enforcement]
    stripped_environment: Sequence[str]
    ephemeral: bool
    workspace: Workspace | None
    user: str
    policy: SandboxPolicy | None

    @classmethod
    def of(cls, message: api.Sandbox) -> SandboxInfo:
        limits, wall = message.limits, message.isolation
        return cls(
            id=message.sandbox_id,
            name=present(message, "name"),
            template=message.template,
            backend=message.backend,
            state=api.SANDBOX_STATE_WORDS[message.state],
            created_at=moment(message, "created_at"),
            expires_at=moment(message, "expires_at"),
            used_at=moment(message, "used_at"),
            isolation=Isolation(
                backend=wall.backend,
                runtime=present(wall, "runtime"),
                isolation_class=getattr(wall, "class"),
                network_mode=wall.network_mode,
                network_enforcement=wall.network_enforcement,
                writable_paths=tuple(wall.writable_paths),
                timeout=wall.timeout_secs,
            ),
            failure=present(message, "failure"),
            tenant=message.tenant,
            labels=dict(message.labels),
            metadata=dict(message.metadata),
            limits=Limits(
                memory=present(limits, "memory_bytes"),
                cpus=limits.milli_cpus / 1000 if limits.HasField("milli_cpus") else None,
                pids=present(limits, "pids"),
                disk=present(limits, "disk_bytes"),
            ),
            idle_timeout=message.idle_timeout_secs,
            lease=message.lease_secs,
            enforcement=enforcement(message.enforcement),
            stripped_environment=tuple(message.stripped_environment),
            ephemeral=message.ephemeral,
            workspace=Workspace(message.workspace.path, present(message.workspace, "mode"))
            if message.HasField("workspace")
            else None,
            user=message.user,
            policy=policy_of(message),
        )


def policy_of(message: api.Sandbox | api.Snapshot) -> SandboxPolicy | None:
    if not message.HasField("policy"):
        return None
    policy = message.policy
    return SandboxPolicy(policy.name, present(policy, "version"), policy.digest, policy.recording)


def enforcement(messages: Sequence[api.Enforcement]) -> tuple[Enforcement, ...]:
    return tuple(Enforcement(rule.subject, rule.rule, rule.mechanism, rule.full) for rule in messages)


@dataclass(frozen=True)
class Explanation:
    """What a request would give, why, and what holds each rule."""

    requested_backend: str
    chosen_backend: str
    reason: str
    isolation_class: str
    template: str
    template_reason: str
    network_mode: str
    network_enforcement: str
    writable_paths: Sequence[str]
    timeout: int
    stripped_environment: Sequence[str]
    rules: Sequence[Enforcement]

    @classmethod
    def of(cls, message: api.Explanation) -> Explanation:
        return cls(
            requested_backend=message.requested_backend,
            chosen_backend=message.chosen_backend,
            reason=message.reason,
            isolation_class=getattr(message, "class"),
            template=message.template,
            template_reason=message.template_reason,
            network_mode=message.network_mode,
            network_enforcement=message.network_enforcement,
            writable_paths=tuple(message.writable_paths),
            timeout=message.timeout_secs,
            stripped_environment=tuple(message.stripped_environment),
            rules=enforcement(message.rules),
        )


@dataclass(frozen=True)
class Event:
    """Something that happened. Numbers grow and never repeat."""

    seq: int
    at: datetime | None
    kind: str
    tenant: str
    sandbox_id: str
    process_id: str | None
    detail: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, message: api.Event) -> Event:
        return cls(
            seq=message.seq,
            at=moment(message, "at"),
            kind=api.EVENT_KIND_WORDS[message.kind],
            tenant=message.tenant,
            sandbox_id=message.sandbox_id,
            process_id=present(message, "process_id"),
            detail=dict(message.detail),
        )


@dataclass(frozen=True)
class LayerChange:
    """A change in a workspace layer: `added`, `modified`, `removed` or `replaced`."""

    change: str
    path: str
    kind: str
    size: int

    @classmethod
    def of(cls, message: api.LayerChange) -> LayerChange:
        return cls(message.change, message.path, message.kind, message.size)


@dataclass(frozen=True)
class ExposedPort:
    """A port that is shown over HTTP. `url` where the server listens on TCP; the token opens it unless it is public."""

    port: int
    public: bool
    url: str | None
    path: str
    token: str | None
    token_expires_at: datetime | None

    @classmethod
    def of(cls, message: api.ExposedPort) -> ExposedPort:
        return cls(
            port=message.port,
            public=message.public,
            url=present(message, "url"),
            path=message.path,
            token=present(message, "token"),
            token_expires_at=moment(message, "token_expires_at"),
        )


@dataclass(frozen=True)
class Server:
    """The server that answers."""

    pid: int
    version: str
    addresses: Sequence[str]
    state_dir: str
    automatic: bool
    sandboxes: int
    processes: int

    @classmethod
    def of(cls, message: api.Server) -> Server:
        return cls(
            pid=message.pid,
            version=message.version,
            addresses=tuple(message.addresses),
            state_dir=message.state_dir,
            automatic=message.automatic,
            sandboxes=message.counts.sandboxes,
            processes=message.counts.processes,
        )


@dataclass(frozen=True)
class Template:
    """What a sandbox can start from."""

    name: str
    description: str
    available: bool
    detail: str

    @classmethod
    def of(cls, message: api.Template) -> Template:
        return cls(message.name, message.description, message.available, message.detail)
