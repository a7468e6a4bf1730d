"""What a server keeps beside sandboxes, as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from belljar._generated import api
from belljar._models import SandboxPolicy, moment, policy_of, present


@dataclass(frozen=True)
class Snapshot:
    """The kept files of a sandbox. bytes: what is stored; content_bytes: the sum of the sizes of all files.

    skipped: entries that were left out (pipes, sockets, what could not be read). policy: what its sandbox ran under; a
    restored one does too, unless another is named.
    """

    id: str
    name: str | None
    sandbox_id: str
    tenant: str
    template: str
    created_at: datetime | None
    bytes: int
    content_bytes: int
    digest: str
    paths: Sequence[str]
    labels: Mapping[str, str]
    skipped: int
    policy: SandboxPolicy | None

    @classmethod
    def of(cls, message: api.Snapshot) -> Snapshot:
        return cls(
            id=message.snapshot_id,
            name=present(message, "name"),
            sandbox_id=message.sandbox_id,
            tenant=message.tenant,
            template=message.template,
            created_at=moment(message, "created_at"),
            bytes=message.bytes,
            content_bytes=message.content_bytes,
            digest=message.digest,
            paths=tuple(message.paths),
            labels=dict(message.labels),
            skipped=message.skipped,
            policy=policy_of(message),
        )


@dataclass(frozen=True)
class Secret:
    """A secret that the server keeps, without its value."""

    name: str
    tenant: str
    created_at: datetime | None
    changed_at: datetime | None

    @classmethod
    def of(cls, message: api.Secret) -> Secret:
        return cls(message.name, message.tenant, moment(message, "created_at"), moment(message, "changed_at"))


@dataclass(frozen=True)
class Profile:
    """A network policy with a name."""

    name: str
    description: str
    mode: str
    allow: Sequence[str]

    @classmethod
    def of(cls, message: api.Profile) -> Profile:
        return cls(message.name, message.description, message.mode, tuple(message.allow))


@dataclass(frozen=True)
class FetchStep:
    """How far one part of an image is: `waiting`, `coming`, `unpacking` or `done`; bytes of `of`, while they come."""

    part: str
    state: str
    bytes: int | None
    of: int | None


def fetch_step(message: api.FetchStep) -> FetchStep:
    state = api.FETCH_STATE_WORDS[message.state]
    return FetchStep(message.part, state, present(message, "bytes"), present(message, "of"))


@dataclass(frozen=True)
class LearnedPolicy:
    """The smallest document that allows what a sandbox did, as YAML; notes: what could not be learned exactly."""

    document: str
    notes: Sequence[str]
