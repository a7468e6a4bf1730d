"""Where a server listens, and how its address is given to gRPC."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from belljar._generated.codes import InvalidArgument

# The collected output of a command, and the files that are read with it, come in one message.
MAX_MESSAGE = 64 * 1024 * 1024

# An address has room for so many bytes; a path may have more.
MAX_SOCKET_PATH = 100


@dataclass(frozen=True)
class Address:
    """A socket of this machine, or a host and a port, with or without TLS."""

    target: str
    tls: bool = False
    socket: str | None = None


def parse(text: str) -> Address:
    """Reads `http://HOST[:PORT]`, `https://HOST[:PORT]`, `unix:PATH`, or an absolute path."""
    if text.startswith(("unix:", "/")):
        path = text[5:] if text.startswith("unix:") else text
        path = path[2:] if path.startswith("//") else path
        if path:
            return Address(target=f"unix:{os.path.abspath(path)}", socket=os.path.abspath(path))
    parts = urlsplit(text)
    if parts.scheme in ("http", "https") and parts.hostname:
        host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
        port = parts.port or (443 if parts.scheme == "https" else 80)
        return Address(target=f"dns:///{host}:{port}", tls=parts.scheme == "https")
    raise InvalidArgument(
        f"`{text}` is no address of a server",
        remedy="give `url` as `http://HOST:PORT`, `https://HOST:PORT` or `unix:PATH`",
    )


def trusted(ca: str | os.PathLike[str] | bytes | None) -> bytes | None:
    """The certificates that a server's must come from; none: those of this machine."""
    if ca is None or isinstance(ca, bytes):
        return ca
    try:
        with open(ca, "rb") as file:
            return file.read()
    except OSError as error:
        raise InvalidArgument(
            f"`{os.fspath(ca)}` cannot be read", cause=str(error), remedy="give `ca` as a file of certificates (PEM)"
        ) from error


class Reached:
    """What gRPC needs to connect to an address; holds the socket's directory open where its path is long."""

    def __init__(self, address: Address) -> None:
        self.target = address.target
        self._directory: int | None = None
        if address.socket and len(os.fsencode(address.socket)) > MAX_SOCKET_PATH:
            directory, name = os.path.split(address.socket)
            self._directory = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self.target = f"unix:/proc/self/fd/{self._directory}/{name}"

    def close(self) -> None:
        if self._directory is not None:
            os.close(self._directory)
            self._directory = None


def options(address: Address) -> list[tuple[str, Any]]:
    """Settings of a channel."""
    chosen: list[tuple[str, Any]] = [
        ("grpc.max_receive_message_length", MAX_MESSAGE),
        ("grpc.max_send_message_length", MAX_MESSAGE),
        ("grpc.initial_reconnect_backoff_ms", 50),
        ("grpc.min_reconnect_backoff_ms", 50),
        ("grpc.max_reconnect_backoff_ms", 1000),
        # We try again ourselves, where it is safe.
        ("grpc.enable_retries", 0),
        # A server that was started anew is another one: connections are not shared between clients.
        ("grpc.use_local_subchannel_pool", 1),
    ]
    if address.socket:
        # A proxy of this machine's user is not for a socket; the name stands in for a host, which a socket has not.
        chosen += [("grpc.enable_http_proxy", 0), ("grpc.default_authority", "belljar.localhost")]
    else:
        chosen += [("grpc.keepalive_time_ms", 30_000), ("grpc.keepalive_timeout_ms", 10_000)]
    return chosen


def metadata(key: str | None) -> tuple[tuple[str, str], ...]:
    """What goes with every request."""
    return (("authorization", f"Bearer {key.strip()}"),) if key else ()
