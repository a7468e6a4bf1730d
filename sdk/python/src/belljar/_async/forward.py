"""A port of a sandbox as a port of this machine."""

from __future__ import annotations

import asyncio
import contextlib
from types import TracebackType
from typing import Any

import grpc

from belljar._async.connection import AsyncConnection
from belljar._failure import BelljarError
from belljar._generated import api, methods

PIECE = 64 * 1024


class AsyncForward:
    """Listens on loopback and joins each connection to the port inside, until it or the client is closed.

    `address` says where."""

    def __init__(self, connection: AsyncConnection, sandbox: str, port: int) -> None:
        self._connection = connection
        self._sandbox = sandbox
        self._port = port
        self._server: asyncio.Server | None = None
        self._joined: set[asyncio.Task[Any]] = set()
        self.address = ("127.0.0.1", 0)

    async def open(self, local_port: int) -> AsyncForward:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", local_port)
        self.address = self._server.sockets[0].getsockname()[:2]
        self._connection.attached.add(self)
        return self

    async def __aenter__(self) -> AsyncForward:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Listens no longer, and ends the connections that are open."""
        if self._server is not None:
            self._server.close()
        for task in list(self._joined):
            task.cancel()
        await asyncio.gather(*self._joined, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._joined.add(task)
        # What breaks on one side ends the other; whoever connected sees it end.
        with contextlib.suppress(grpc.RpcError, BelljarError, OSError, asyncio.CancelledError):
            await self._join(reader, writer)
        writer.close()
        self._joined.discard(task)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        call = await self._connection.both(methods.FORWARD_PORT)
        inwards = asyncio.create_task(self._inwards(reader, call))
        try:
            async for message in call:
                writer.write(message.data)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
            await inwards
        finally:
            inwards.cancel()
            call.cancel()

    async def _inwards(self, reader: asyncio.StreamReader, call: Any) -> None:
        await call.write(api.ForwardPortRequest(sandbox=self._sandbox, port=self._port))
        while data := await reader.read(PIECE):
            await call.write(api.ForwardPortRequest(data=data))
        await call.done_writing()
