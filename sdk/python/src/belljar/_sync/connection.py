"""Calls to one server, found or started when it is first needed, and found again when it was lost."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import grpc

from belljar import _address, _local
from belljar._failure import BelljarError, of_call
from belljar._generated.codes import ServerUnreachable
from belljar._method import A, Both, Download, Q, Unary, Upload
from belljar._patience import LOST, Patience


class Connection:
    """A channel to a server. Threads may share it."""

    def __init__(
        self,
        url: str | None,
        api_key: str | None,
        ca: str | os.PathLike[str] | bytes | None,
        state_dir: str | os.PathLike[str] | None,
        binary: str | os.PathLike[str] | None,
        patience: float,
    ) -> None:
        self._address = _address.parse(url) if url else None
        self._metadata = _address.metadata(api_key)
        self._trusted = _address.trusted(ca)
        self._state_dir = state_dir
        self._binary = binary
        self._seconds = patience
        self._channel: grpc.Channel | None = None
        self._reached: _address.Reached | None = None
        self._lock = threading.Lock()
        # Making one for each call would cost as much as the call.
        self._stubs: dict[str, Any] = {}
        self._closed = False
        # Conversations that end with the connection.
        self.attached: weakref.WeakSet[Any] = weakref.WeakSet()

    def open(self) -> grpc.Channel:
        """The channel, to the server as it was found or is started now."""
        channel = self._channel
        if channel is not None:
            return channel
        with self._lock:
            if self._closed:
                raise ServerUnreachable("the client is closed", remedy="use the client inside its `with` block")
            if self._channel is None:
                address = self._address
                if address is None:
                    address = _local.start(self._binary, self._state_dir)
                self._reached = _address.Reached(address)
                self._channel = self._connect(address, self._reached)
            return self._channel

    def _connect(self, address: _address.Address, reached: _address.Reached) -> grpc.Channel:
        options = _address.options(address)
        if address.tls:
            credentials = grpc.ssl_channel_credentials(self._trusted)
            return grpc.secure_channel(reached.target, credentials, options=options)
        return grpc.insecure_channel(reached.target, options=options)

    def close(self) -> None:
        self._closed = True
        for conversation in list(self.attached):
            conversation.close()
        with self._lock:
            channel, self._channel = self._channel, None
            self._stubs.clear()
        if channel is not None:
            channel.close()
        if self._reached is not None:
            self._reached.close()

    def patience(self) -> Patience:
        return Patience(self._seconds)

    def recover(self, patience: Patience, error: BelljarError) -> None:
        """Waits for the next attempt, or raises `error` where there is none. A local server is started anew."""
        if self._closed:
            raise error
        time.sleep(patience.pause(error))
        if self._address is None:
            # It listens where the one before did, and the channel connects again by itself.
            with self._lock:
                _local.start(self._binary, self._state_dir)

    def call(self, method: Unary[Q, A], request: Q, *, again: bool = False, timeout: float | None = None) -> A:
        """One message, one answer. `again`: the request may be sent again where its answer was lost."""
        patience = self.patience()
        while True:
            try:
                return self._call(method, request, timeout)
            except LOST as error:
                if not again:
                    raise
                self.recover(patience, error)

    def _call(self, method: Unary[Q, A], request: Q, timeout: float | None) -> A:
        channel = self.open()
        stub = self._stubs.get(method.path)
        if stub is None:
            stub = channel.unary_unary(method.path, method.takes.SerializeToString, method.answers.FromString)
            self._stubs[method.path] = stub
        try:
            answer: A = stub(request, metadata=self._metadata, timeout=timeout)
            return answer
        except (grpc.RpcError, ValueError) as error:
            raise self._failure(error) from None

    def download(self, method: Download[Q, A], request: Q) -> Iterator[A]:
        """One message, many answers. The call ends with the iteration."""
        channel = self.open()
        stub = channel.unary_stream(method.path, method.takes.SerializeToString, method.answers.FromString)
        try:
            call = stub(request, metadata=self._metadata)
        except ValueError as error:
            raise self._failure(error) from None
        try:
            yield from call
        except grpc.RpcError as error:
            raise of_call(error) from None
        finally:
            call.cancel()

    def upload(self, method: Upload[Q, A], requests: Iterator[Q]) -> A:
        """Many messages, one answer. What fails while they are made ends the call, incomplete, and is raised."""
        channel = self.open()
        stub = channel.stream_unary(method.path, method.takes.SerializeToString, method.answers.FromString)
        failed: list[Exception] = []

        def watched() -> Iterator[Q]:
            try:
                yield from requests
            except Exception as error:
                failed.append(error)
                raise

        try:
            return stub(watched(), metadata=self._metadata)
        except (grpc.RpcError, ValueError) as error:
            raise (failed[0] if failed else self._failure(error)) from None

    def both(self, method: Both[Q, A], requests: Iterator[Q]) -> Any:
        """Many messages, many answers: the call itself, to be read and cancelled."""
        channel = self.open()
        stub = channel.stream_stream(method.path, method.takes.SerializeToString, method.answers.FromString)
        return stub(requests, metadata=self._metadata)

    @staticmethod
    def _failure(error: Exception) -> BelljarError:
        if isinstance(error, grpc.RpcError):
            return of_call(error)
        # What gRPC says of a channel that another thread closed.
        return ServerUnreachable("the connection was closed", cause=str(error))
