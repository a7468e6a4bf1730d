"""Calls to one server, found or started when it is first needed, and found again when it was lost."""

from __future__ import annotations

import asyncio
import os
import weakref
from collections.abc import AsyncIterator
from typing import Any

import grpc

from belljar import _address, _local
from belljar._failure import BelljarError, of_call
from belljar._generated.codes import ServerUnreachable
from belljar._method import A, Both, Download, Q, Unary, Upload
from belljar._patience import LOST, Patience


class AsyncConnection:
    """A channel to a server. Of one event loop."""

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
        self._channel: grpc.aio.Channel | None = None
        self._reached: _address.Reached | None = None
        self._lock = asyncio.Lock()
        # Making one for each call would cost as much as the call.
        self._stubs: dict[str, Any] = {}
        self._closed = False
        # Conversations that end with the connection.
        self.attached: weakref.WeakSet[Any] = weakref.WeakSet()

    async def open(self) -> grpc.aio.Channel:
        """The channel, to the server as it was found or is started now."""
        if self._channel is not None:
            return self._channel
        async with self._lock:
            if self._closed:
                raise ServerUnreachable("the client is closed", remedy="use the client inside its `with` block")
            if self._channel is None:
                address = self._address
                if address is None:
                    address = await asyncio.to_thread(_local.start, self._binary, self._state_dir)
                self._reached = _address.Reached(address)
                self._channel = self._connect(address, self._reached)
            return self._channel

    def _connect(self, address: _address.Address, reached: _address.Reached) -> grpc.aio.Channel:
        options = _address.options(address)
        if address.tls:
            credentials = grpc.ssl_channel_credentials(self._trusted)
            return grpc.aio.secure_channel(reached.target, credentials, options=options)
        return grpc.aio.insecure_channel(reached.target, options=options)

    async def close(self) -> None:
        self._closed = True
        for conversation in list(self.attached):
            await conversation.close()
        channel, self._channel = self._channel, None
        self._stubs.clear()
        if channel is not None:
            await channel.close()
        if self._reached is not None:
            self._reached.close()

    def patience(self) -> Patience:
        return Patience(self._seconds)

    async def recover(self, patience: Patience, error: BelljarError) -> None:
        """Waits for the next attempt, or raises `error` where there is none. A local server is started anew."""
        if self._closed:
            raise error
        await asyncio.sleep(patience.pause(error))
        if self._address is None:
            # It listens where the one before did, and the channel connects again by itself.
            async with self._lock:
                await asyncio.to_thread(_local.start, self._binary, self._state_dir)

    async def call(self, method: Unary[Q, A], request: Q, *, again: bool = False, timeout: float | None = None) -> A:
        """One message, one answer. `again`: the request may be sent again where its answer was lost."""
        patience = self.patience()
        while True:
            try:
                return await self._call(method, request, timeout)
            except LOST as error:
                if not again:
                    raise
                await self.recover(patience, error)

    async def _call(self, method: Unary[Q, A], request: Q, timeout: float | None) -> A:
        channel = await self.open()
        stub = self._stubs.get(method.path)
        if stub is None:
            stub = channel.unary_unary(method.path, method.takes.SerializeToString, method.answers.FromString)
            self._stubs[method.path] = stub
        try:
            answer: A = await stub(request, metadata=self._metadata, timeout=timeout)
            return answer
        except grpc.RpcError as error:
            raise of_call(error) from None

    async def download(self, method: Download[Q, A], request: Q) -> AsyncIterator[A]:
        """One message, many answers. The call ends with the iteration."""
        channel = await self.open()
        stub = channel.unary_stream(method.path, method.takes.SerializeToString, method.answers.FromString)
        call = stub(request, metadata=self._metadata)
        try:
            async for answer in call:
                yield answer
        except grpc.RpcError as error:
            raise of_call(error) from None
        finally:
            call.cancel()

    async def upload(self, method: Upload[Q, A], requests: AsyncIterator[Q]) -> A:
        """Many messages, one answer. What fails while they are made ends the call, incomplete, and is raised."""
        channel = await self.open()
        stub = channel.stream_unary(method.path, method.takes.SerializeToString, method.answers.FromString)
        failed: list[Exception] = []

        async def watched() -> AsyncIterator[Q]:
            try:
                async for request in requests:
                    yield request
            except Exception as error:
                failed.append(error)
                raise

        try:
            return await stub(watched(), metadata=self._metadata)
        except asyncio.CancelledError:
            # This is how gRPC says that the messages failed, too.
            if not failed:
                raise
        except grpc.RpcError as error:
            if not failed:
                raise of_call(error) from None
        raise failed[0]

    async def both(self, method: Both[Q, A]) -> Any:
        """Many messages, many answers: the call itself, to be written to, read and cancelled."""
        channel = await self.open()
        stub = channel.stream_stream(method.path, method.takes.SerializeToString, method.answers.FromString)
        return stub(metadata=self._metadata)
