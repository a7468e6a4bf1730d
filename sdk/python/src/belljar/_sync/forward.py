"""A port of a sandbox as a port of this machine."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Any

import grpc

from belljar._failure import BelljarError
from belljar._generated import api, methods
from belljar._sync.connection import Connection

PIECE = 64 * 1024


class Forward:
    """Listens on loopback and joins each connection to the port inside, until it or the client is closed.

    `address` says where."""

    def __init__(self, connection: Connection, sandbox: str, port: int) -> None:
        self._connection = connection
        self._sandbox = sandbox
        self._port = port
        self._listener: socket.socket | None = None
        self._joined: set[socket.socket] = set()
        self._lock = threading.Lock()
        self.address = ("127.0.0.1", 0)

    def open(self, local_port: int) -> Forward:
        self._listener = socket.create_server(("127.0.0.1", local_port))
        self.address = self._listener.getsockname()
        self._connection.attached.add(self)
        threading.Thread(target=self._accept, args=(self._listener,), name="belljar-forward", daemon=True).start()
        return self

    def __enter__(self) -> Forward:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Listens no longer, and ends the connections that are open."""
        listener, self._listener = self._listener, None
        if listener is not None:
            # Closing alone does not wake who waits for a connection.
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self._lock:
            joined = list(self._joined)
        for peer in joined:
            with contextlib.suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                threading.Thread(target=self._serve, args=(peer,), name="belljar-forward", daemon=True).start()

    def _serve(self, peer: socket.socket) -> None:
        with self._lock:
            self._joined.add(peer)
        # What breaks on one side ends the other; whoever connected sees it end.
        with contextlib.suppress(grpc.RpcError, BelljarError, OSError, ValueError):
            self._join(peer)
        with self._lock:
            self._joined.discard(peer)
        peer.close()

    def _join(self, peer: socket.socket) -> None:
        ended = threading.Event()
        call: Any = self._connection.both(methods.FORWARD_PORT, self._inwards(peer, ended))
        try:
            for message in call:
                peer.sendall(message.data)
            peer.shutdown(socket.SHUT_WR)
            ended.wait()
        finally:
            call.cancel()

    def _inwards(self, peer: socket.socket, ended: threading.Event) -> Iterator[api.ForwardPortRequest]:
        yield api.ForwardPortRequest(sandbox=self._sandbox, port=self._port)
        try:
            while data := peer.recv(PIECE):
                yield api.ForwardPortRequest(data=data)
        except OSError:
            return
        finally:
            ended.set()
