"""Who may use a server and how much of it, who is told, and what is on record; as plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from belljar._generated import api
from belljar._generated.codes import InvalidLimit
from belljar._models import Enforcement, enforcement, moment, present


@dataclass(frozen=True)
class Caller:
    """Who this client is to the server. by: `socket`, `loopback`, `key` or `token`."""

    role: str
    tenant: str
    sandbox_id: str | None
    key_id: str | None
    scopes: Sequence[str]
    by: str

    @classmethod
    def of(cls, message: api.Caller) -> Caller:
        return cls(
            role=message.role,
            tenant=message.tenant,
            sandbox_id=present(message, "sandbox_id"),
            key_id=present(message, "key_id"),
            scopes=tuple(message.scopes),
            by=message.by,
        )


@dataclass(frozen=True)
class Key:
    """An API key. `secret` is there in the answer that made it, and nowhere else."""

    id: str
    name: str
    tenant: str
    role: str
    sandbox_id: str | None
    scopes: Sequence[str]
    created_at: datetime | None
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None
    secret: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, message: api.Key, secret: str | None = None) -> Key:
        return cls(
            id=message.key_id,
            name=message.name,
            tenant=message.tenant,
            role=message.role,
            sandbox_id=present(message, "sandbox_id"),
            scopes=tuple(message.scopes),
            created_at=moment(message, "created_at"),
            expires_at=moment(message, "expires_at"),
            last_used_at=moment(message, "last_used_at"),
            revoked_at=moment(message, "revoked_at"),
            secret=secret,
        )


@dataclass(frozen=True)
class Token:
    """Opens one sandbox until it expires."""

    token: str = field(repr=False)
    expires_at: datetime | None


@dataclass(frozen=True)
class Quotas:
    """What a tenant may use in total, or uses. Sizes are bytes; absent: no limit."""

    sandboxes: int | None = None
    memory: int | None = None
    cpus: float | None = None
    disk: int | None = None
    processes: int | None = None
    requests_per_second: int | None = None

    @classmethod
    def of(cls, message: api.Quotas) -> Quotas:
        return cls(
            sandboxes=present(message, "sandboxes"),
            memory=present(message, "memory_bytes"),
            cpus=message.milli_cpus / 1000 if message.HasField("milli_cpus") else None,
            disk=present(message, "disk_bytes"),
            processes=present(message, "processes"),
            requests_per_second=present(message, "requests_per_second"),
        )


def quotas(given: Quotas | Mapping[str, Any] | None) -> api.Quotas | None:
    if given is None:
        return None
    if not isinstance(given, Quotas):
        known = Quotas.__dataclass_fields__
        unknown = set(given) - set(known)
        if unknown:
            raise InvalidLimit(f"`quotas` has no `{min(unknown)}`", remedy=f"quotas are {', '.join(known)}")
        given = Quotas(**given)
    return api.Quotas(
        sandboxes=given.sandboxes,
        memory_bytes=given.memory,
        milli_cpus=None if given.cpus is None else round(given.cpus * 1000),
        disk_bytes=given.disk,
        processes=given.processes,
        requests_per_second=given.requests_per_second,
    )


@dataclass(frozen=True)
class Tenant:
    """An owner of sandboxes: what it may use, and what is in use."""

    name: str
    quotas: Quotas
    usage: Quotas
    created_at: datetime | None

    @classmethod
    def of(cls, message: api.Tenant) -> Tenant:
        return cls(message.tenant, Quotas.of(message.quotas), Quotas.of(message.usage), moment(message, "created_at"))


@dataclass(frozen=True)
class Webhook:
    """An address that is told what happens. delivered_seq: the last event that arrived there."""

    id: str
    url: str
    tenant: str
    kinds: Sequence[str]
    created_at: datetime | None
    delivered_seq: int
    failures: int
    last_error: str | None

    @classmethod
    def of(cls, message: api.Webhook) -> Webhook:
        return cls(
            id=message.webhook_id,
            url=message.url,
            tenant=message.tenant,
            kinds=tuple(api.EVENT_KIND_WORDS[kind] for kind in message.kinds),
            created_at=moment(message, "created_at"),
            delivered_seq=message.delivered_seq,
            failures=message.failures,
            last_error=present(message, "last_error"),
        )


@dataclass(frozen=True)
class AuditRecord:
    """Who did what to which sandbox. outcome: `ok`, or the code of a failure; hash: over this and the one before."""

    seq: int
    at: datetime | None
    actor: str
    tenant: str
    action: str
    sandbox_id: str | None
    process_id: str | None
    outcome: str
    detail: Mapping[str, str]
    request_id: str
    hash: str

    @classmethod
    def of(cls, message: api.AuditRecord) -> AuditRecord:
        return cls(
            seq=message.seq,
            at=moment(message, "at"),
            actor=message.actor,
            tenant=message.tenant,
            action=message.action,
            sandbox_id=present(message, "sandbox_id"),
            process_id=present(message, "process_id"),
            outcome=message.outcome,
            detail=dict(message.detail),
            request_id=message.request_id,
            hash=message.hash,
        )


@dataclass(frozen=True)
class Probe:
    """What became of a tiny sandbox on a backend. fast: fast enough to be chosen by `auto`."""

    backend: str
    runtime: str | None
    works: bool
    isolation_class: str
    detail: str
    start_ms: float | None
    fast: bool
    enforcement: Sequence[Enforcement]
    remedy: str | None

    @classmethod
    def of(cls, message: api.Probe) -> Probe:
        return cls(
            backend=message.backend,
            runtime=present(message, "runtime"),
            works=message.works,
            isolation_class=getattr(message, "class"),
            detail=message.detail,
            start_ms=present(message, "start_ms"),
            fast=message.fast,
            enforcement=enforcement(message.enforcement),
            remedy=present(message, "remedy"),
        )


@dataclass(frozen=True)
class Leak:
    """Something that no sandbox owns any more: a `process`, `mount`, `cgroup`, `file`, …"""

    kind: str
    name: str
    sandbox_id: str | None

    @classmethod
    def of(cls, message: api.Leak) -> Leak:
        return cls(message.kind, message.name, present(message, "sandbox_id"))
