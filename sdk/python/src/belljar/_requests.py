"""Requests from the arguments of methods, the same for both clients."""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Union

from typing_extensions import TypedDict, Unpack

from belljar import _policy
from belljar._generated import api
from belljar._generated.codes import ConflictingOptions, InvalidArgument, InvalidLimit
from belljar._models import Limits, Workspace
from belljar._offer import OnConnection, OnRequest, Secrets, Tools
from belljar._policy import PolicySource

# A line for the shell, or a program with its arguments.
Command = Union[str, Sequence[Union[str, bytes]]]
Content = Union[str, bytes]

SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", re.IGNORECASE)
UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


class CreateOptions(TypedDict, total=False):
    """What a sandbox is to be like; everything has a default. Absent means denied.

    template: `auto`, `host`, `rootfs:DIR`, `image:NAME` of an engine, or a family (`python`, `node`, `go`, `rust`,
    `base`). backend: `auto`, `native`, `oci` or `docker`; runtime: what runs in it, such as `runsc`; isolation: the
    weakest class that will do (`namespace`, `kernel`, `vm`).
    network: `none`, `allowlist` or `full`; profile: `locked`, `web`, `packages` or `full`; allow: `host`, `*.domain` or
    `host:port`; cidrs: ranges that are not public and may be reached; ask: seconds that what nothing allows waits for
    somebody to allow it. workspace: a directory of the server's host that appears as `/workspace`. mounts: others, as
    `SOURCE:TARGET[:ro|rw]`; masks: paths inside, below mounts or the workspace, that appear empty. timeout: seconds
    that commands may run where they do not say otherwise. idle_timeout, lease: seconds until the sandbox ends by
    itself, unused or in any case. files: written before the first command. ensure: shell lines that run once.
    policy: a file, a text, a dictionary, or the name of one that the server keeps; record_policy: none that denies,
    everything is put on record. tools, on_connection, on_request, secrets: functions of this process that answer for
    the sandbox. callback: `connections` and `requests`, where what answers for them comes later. udp_ports: ports of
    UDP, besides DNS, that `on_connection` is asked about.
    """

    name: str | None
    template: str | None
    backend: str | None
    runtime: str | None
    isolation: str | None
    network: str | None
    profile: str | None
    allow: Sequence[str]
    cidrs: Sequence[str]
    ask: float | None
    workspace: str | os.PathLike[str] | Workspace | None
    mounts: Sequence[str]
    masks: Sequence[str]
    timeout: float | None
    idle_timeout: float | None
    lease: float | None
    limits: Limits | Mapping[str, Any] | None
    best_effort: bool
    env: Mapping[str, str]
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    user: str | None
    cwd: str | None
    writable: bool
    programs: Sequence[str]
    ensure: Sequence[str]
    files: Mapping[str, Content]
    volume: str | None
    tenant: str | None
    policy: PolicySource
    record_policy: bool
    tools: Tools
    on_connection: OnConnection | None
    on_request: OnRequest | None
    secrets: Secrets
    callback: Sequence[str]
    udp_ports: Sequence[int]


def create(**options: Unpack[CreateOptions]) -> api.CreateSandboxRequest:
    """A request for a sandbox; the same request twice makes one."""
    files = options.get("files") or {}
    volume = options.get("volume")
    return api.CreateSandboxRequest(
        name=options.get("name"),
        template=options.get("template"),
        backend=options.get("backend"),
        runtime=options.get("runtime"),
        isolation=options.get("isolation"),
        network=network(options),
        limits=limits(options.get("limits")),
        best_effort=options.get("best_effort", False),
        workspace=workspace(options.get("workspace")),
        mounts=options.get("mounts", ()),
        masks=options.get("masks", ()),
        environment=options.get("env"),
        user=options.get("user"),
        working_directory=options.get("cwd"),
        writable=options.get("writable", False),
        programs=options.get("programs", ()),
        idle_timeout_secs=options.get("idle_timeout"),
        lease_secs=options.get("lease"),
        ensure=options.get("ensure", ()),
        labels=options.get("labels"),
        metadata=options.get("metadata"),
        files=[api.FileContent(path=path, content=encode(content)) for path, content in files.items()],
        tenant=options.get("tenant"),
        idempotency_key=once(),
        volume=api.VolumeMount(name=volume) if volume else None,
        timeout_secs=options.get("timeout"),
        policy=policy(options.get("policy"), options.get("record_policy", False)),
    )


def policy(given: PolicySource | None, record: bool) -> api.PolicySpec | None:
    if record:
        if given is not None:
            raise ConflictingOptions("`policy` and `record_policy` exclude each other", remedy="give one of them")
        return api.PolicySpec(record=True)
    return None if given is None else _policy.spec(given)


def network(options: CreateOptions) -> api.Network | None:
    callback = _callback(options)
    if not callback and not any(options.get(name) for name in ("network", "profile", "allow", "cidrs", "ask")):
        return None
    allow = options.get("allow", ())
    if isinstance(allow, str):
        raise InvalidArgument("`allow` is a text", remedy="give `allow` a list of hosts")
    return api.Network(
        mode=options.get("network"),
        profile=options.get("profile"),
        allow=allow,
        cidrs=options.get("cidrs", ()),
        ask_secs=options.get("ask"),
        callback_connections="connections" in callback,
        callback_requests="requests" in callback,
        callback_udp_ports=options.get("udp_ports", ()),
    )


def _callback(options: CreateOptions) -> set[str]:
    """What is left to functions of this process."""
    callback = set(options.get("callback") or ())
    unknown = callback - {"connections", "requests"}
    if unknown:
        raise InvalidArgument(f"`callback` has no `{min(unknown)}`", remedy="use `connections` and `requests`")
    # Where rules ask, or everything that nothing allows waits, the function answers for what waits.
    if options.get("on_connection") and options.get("ask") is None and options.get("policy") is None:
        callback.add("connections")
    if options.get("on_request"):
        callback.add("requests")
    return callback


def limits(given: Limits | Mapping[str, Any] | None) -> api.Limits | None:
    if given is None:
        return None
    if not isinstance(given, Limits):
        unknown = set(given) - {"memory", "cpus", "pids", "disk"}
        if unknown:
            raise InvalidLimit(
                f"`limits` has no `{min(unknown)}`", remedy="limits are `memory`, `cpus`, `pids` and `disk`"
            )
        given = Limits(**given)
    return api.Limits(
        memory_bytes=size("memory", given.memory),
        milli_cpus=None if given.cpus is None else round(given.cpus * 1000),
        pids=given.pids,
        disk_bytes=size("disk", given.disk),
    )


def size(name: str, given: int | str | None) -> int | None:
    """Bytes from `512M`, `2GiB` or a number."""
    if given is None or isinstance(given, int):
        return given
    parts = SIZE.fullmatch(given)
    if parts is None:
        raise InvalidLimit(f"`{given}` is no size", remedy=f"give `{name}` as bytes, or as `512M` or `2GiB`")
    return int(float(parts[1]) * UNITS[parts[2].lower()])


def workspace(given: str | os.PathLike[str] | Workspace | None) -> api.Workspace | None:
    if given is None:
        return None
    if not isinstance(given, Workspace):
        given = Workspace(os.fspath(given))
    return api.Workspace(path=os.path.abspath(given.path), mode=given.mode)


class CommandOptions(TypedDict, total=False):
    """How a command runs. timeout: seconds; absent: the sandbox's, else 60; 0: none. env is added to the sandbox's.

    context: what the sandbox's policy is told about the command; rules look at `context.NAME`.
    """

    timeout: float | None
    context: Mapping[str, Any]
    cwd: str | None
    env: Mapping[str, str]
    user: str | None


def command(given: Command, **options: Unpack[CommandOptions]) -> api.Command:
    """A shell line, or a program with its arguments."""
    message = _command(options)
    if isinstance(given, str):
        message.shell = given
    elif not given or isinstance(given, (bytes, Mapping)):
        raise InvalidArgument("there is no command", remedy="give a shell line, or a list that begins with a program")
    elif any(isinstance(word, bytes) for word in given):
        message.raw_argv.extend(os.fsencode(word) for word in given)
    else:
        message.argv.extend(str(word) for word in given)
    return message


def code(text: str, language: str, **options: Unpack[CommandOptions]) -> api.Command:
    """A program text."""
    message = _command(options)
    message.code = text
    message.language = language
    return message


def _command(options: CommandOptions) -> api.Command:
    return api.Command(
        environment=options.get("env"),
        working_directory=options.get("cwd"),
        user=options.get("user"),
        timeout_secs=options.get("timeout"),
        context=json.dumps(options["context"]) if options.get("context") else None,
    )


def terminal(given: bool | tuple[int, int] | None) -> api.Terminal | None:
    """Rows and columns."""
    if given is None or given is False:
        return None
    rows, columns = (24, 80) if given is True else given
    return api.Terminal(rows=rows, columns=columns)


def encode(content: Content | bytearray | memoryview) -> bytes:
    return content.encode() if isinstance(content, str) else bytes(content)


def numbers(words: Iterable[str], known: Mapping[int, str], name: str) -> list[int]:
    """The numbers that words of an enumeration have on the wire."""
    table = {word: number for number, word in known.items()}
    chosen = []
    for word in words:
        if word not in table:
            raise InvalidArgument(
                f"`{word}` is not known", remedy=f"`{name}` may have {', '.join(sorted(set(table) - {'unspecified'}))}"
            )
        chosen.append(table[word])
    return chosen


def once() -> str:
    """A key that makes it safe to send a request again."""
    return uuid.uuid4().hex
