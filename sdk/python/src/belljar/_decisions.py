"""Network decisions in the caller's process: what is asked, and what may be answered. Absent means denied."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from belljar._generated import api
from belljar._models import present
from belljar._ranges import Endpoint


@dataclass(frozen=True)
class Tls:
    """What the sandbox says in TLS; a claim."""

    sni: str | None
    alpn: Sequence[str] = ()


def _tls(message: api.ConnectionCall | api.RequestCall) -> Tls | None:
    if not message.HasField("tls"):
        return None
    return Tls(present(message.tls, "sni"), tuple(message.tls.alpn))


@dataclass(frozen=True)
class Verdict:
    """An answer about a connection. Made by `accept`, `accept_http` and `deny` of the connection."""

    allow: bool
    reason: str = ""
    scope: str = "once"
    http: bool = False
    resolver: str | None = None

    def to_wire(self) -> api.ConnectionVerdict:
        scopes = {word: number for number, word in api.VERDICT_SCOPE_WORDS.items()}
        return api.ConnectionVerdict(
            allow=self.allow, reason=self.reason, scope=scopes[self.scope], http=self.http, resolver=self.resolver
        )


@dataclass(frozen=True)
class Connection:
    """A connection that the sandbox wants to make.

    `host` is the name for which our DNS gave the sandbox this address, never what a header says. `dns_name` and
    `dns_type` are set where it is a question to our DNS, which comes first: a name that is denied is not resolved.
    The answer is `connection.accept()`, `connection.accept_http()` or `connection.deny()`; no answer denies.
    """

    transport: str
    source: Endpoint
    destination: Endpoint
    host: str | None = None
    dns_name: str | None = None
    dns_type: str | None = None
    tls: Tls | None = None
    rule: str | None = None

    @property
    def name(self) -> str | None:
        """The name that is asked for, or that the address was given for: what most decisions are about."""
        return self.dns_name or self.host

    @property
    def is_dns(self) -> bool:
        return self.dns_name is not None

    def accept(self, *, scope: str = "once", reason: str = "", resolver: str | None = None) -> Verdict:
        """Lets it through: `once`, or for the same host and port as long as the `sandbox` lives.

        resolver: the server (`IP:PORT`) that is asked for the name, where it is a question to our DNS.
        """
        return Verdict(True, reason, scope, resolver=resolver)

    def accept_http(self, *, scope: str = "once", reason: str = "") -> Verdict:
        """Lets it through as HTTP only; each request is shown to `on_request`."""
        return Verdict(True, reason, scope, http=True)

    def deny(self, reason: str = "") -> Verdict:
        return Verdict(False, reason)

    @classmethod
    def of(cls, message: api.ConnectionCall) -> Connection:
        asks = message.HasField("dns")
        return cls(
            transport=message.transport,
            source=Endpoint.of(message.source),
            destination=Endpoint.of(message.destination),
            host=present(message, "host"),
            dns_name=message.dns.name if asks else None,
            dns_type=message.dns.type if asks else None,
            tls=_tls(message),
            rule=present(message, "rule"),
        )


@dataclass
class Request:
    """An HTTP request on its way out of the sandbox.

    `headers` are as the sandbox sent them, with lower-case names. Headers that are set here go out in their place and
    are never visible inside. The answer is `request.accept()` or `request.deny()`; no answer denies.
    """

    method: str
    url: str
    protocol: str
    headers: Sequence[tuple[str, str]]
    source: Endpoint
    destination: Endpoint
    host: str | None = None
    tls: Tls | None = None
    _set: dict[str, str] = field(default_factory=dict, repr=False)
    _removed: list[str] = field(default_factory=list, repr=False)

    def header(self, name: str) -> str | None:
        """The first header of that name, as the sandbox sent it."""
        return next((value for given, value in self.headers if given == name.lower()), None)

    def set_header(self, name: str, value: str) -> None:
        self._set[name.lower()] = value

    def remove_header(self, name: str) -> None:
        self._removed.append(name.lower())

    def accept(self, headers: Mapping[str, str] | None = None, *, reason: str = "") -> RequestVerdict:
        """Lets it go on, with `headers` set."""
        for name, value in (headers or {}).items():
            self.set_header(name, value)
        return RequestVerdict(True, reason, dict(self._set), tuple(self._removed))

    def deny(self, reason: str = "") -> RequestVerdict:
        return RequestVerdict(False, reason)

    @classmethod
    def of(cls, message: api.RequestCall) -> Request:
        return cls(
            method=message.method,
            url=message.url,
            protocol=message.protocol,
            headers=tuple((header.name, header.value) for header in message.headers),
            source=Endpoint.of(message.source),
            destination=Endpoint.of(message.destination),
            host=present(message, "host"),
            tls=_tls(message),
        )


@dataclass(frozen=True)
class RequestVerdict:
    """An answer about a request. Made by `accept` and `deny` of the request."""

    allow: bool
    reason: str = ""
    set_headers: Mapping[str, str] = field(default_factory=dict)
    remove_headers: Sequence[str] = ()

    def to_wire(self) -> api.RequestVerdict:
        return api.RequestVerdict(
            allow=self.allow,
            reason=self.reason,
            set_headers=[api.HttpHeader(name=name, value=value) for name, value in self.set_headers.items()],
            remove_headers=self.remove_headers,
        )
