"""One process: a durable object with a log that can be replayed and followed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from belljar import _requests
from belljar._async.connection import AsyncConnection
from belljar._generated import api, methods
from belljar._generated.codes import TimedOut
from belljar._outcomes import Logs, Offsets, Output, ProcessInfo, Result, Usage
from belljar._patience import LOST
from belljar._requests import Content

# Pieces of standard input.
PIECE = 64 * 1024


class AsyncProcess:
    """A command that was started. It goes on when the client goes away; any client can follow it again.

    Iterating gives its output from the beginning to its end.
    """

    def __init__(self, connection: AsyncConnection, info: ProcessInfo) -> None:
        self._connection = connection
        self.info = info
        self.stdin = AsyncInput(connection, info.id)

    @property
    def id(self) -> str:
        return self.info.id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.status}>"

    def __aiter__(self) -> AsyncIterator[Output]:
        return self.output()

    async def output(
        self, *, since: Offsets | None = None, channels: Sequence[str] = (), follow: bool = True
    ) -> AsyncIterator[Output]:
        """The output from an offset on, and with `follow` until the process ends.

        A lost connection is made again and the output goes on at the byte where it was, without loss or repetition.
        """
        position = since or Offsets()
        chosen = _requests.numbers(channels, api.CHANNEL_WORDS, "channels")
        patience = self._connection.patience()
        while True:
            request = api.FollowLogRequest(process_id=self.id, since=position.to_wire(), channels=chosen, follow=follow)
            try:
                async for message in self._connection.download(methods.FOLLOW_LOG, request):
                    patience.progress()
                    if message.HasField("ended"):
                        self.info = ProcessInfo.of(message.ended)
                        return
                    if message.data:
                        piece = Output.of(message)
                        position = position.past(piece)
                        yield piece
                if not follow:
                    return
            except LOST as error:
                await self._connection.recover(patience, error)

    async def logs(self, since: Offsets | None = None) -> Logs:
        """What it wrote by now, from an offset on."""
        position = since or Offsets()
        stdout, stderr = bytearray(), bytearray()
        async for piece in self.output(since=position, follow=False):
            (stdout if piece.channel == "stdout" else stderr).extend(piece.data)
            position = position.past(piece)
        return Logs(bytes(stdout), bytes(stderr), position)

    async def refresh(self) -> ProcessInfo:
        """Asks the server how it is now."""
        request = api.GetProcessRequest(process_id=self.id)
        self.info = ProcessInfo.of(await self._connection.call(methods.GET_PROCESS, request, again=True))
        return self.info

    async def wait(self, timeout: float | None = None) -> ProcessInfo:
        """Waits for its end. `TimedOut` where it still runs after `timeout` seconds."""
        request = api.WaitProcessRequest(process_id=self.id, timeout_secs=timeout)
        self.info = ProcessInfo.of(await self._connection.call(methods.WAIT_PROCESS, request, again=True))
        if not self.info.ended:
            raise TimedOut(f"process `{self.id}` still runs after {timeout} s", remedy="give a larger `timeout`")
        return self.info

    async def result(self, timeout: float | None = None) -> Result:
        """Waits for its end, and gives all that it wrote and is still kept."""
        info = await self.wait(timeout)
        logs = await self.logs()
        return Result(
            exit_code=-1 if info.exit_code is None else info.exit_code,
            stdout_bytes=logs.stdout_bytes,
            stderr_bytes=logs.stderr_bytes,
            reason=info.reason or "lost",
            timed_out=info.timed_out,
            duration=info.duration or 0.0,
            usage=info.usage or Usage(),
            process_id=info.id,
            sandbox_id=info.sandbox_id,
            limits_hit=info.limits_hit,
            stdout_truncated=info.log_start.stdout > 0,
            stderr_truncated=info.log_start.stderr > 0,
            stripped_environment=info.stripped_environment,
            findings=info.findings,
        )

    async def cancel(self, grace: float | None = None) -> ProcessInfo:
        """TERM to the process group, and KILL to all it started after `grace` seconds (5)."""
        request = api.CancelProcessRequest(process_id=self.id, grace_secs=grace)
        self.info = ProcessInfo.of(await self._connection.call(methods.CANCEL_PROCESS, request, again=True))
        return self.info

    async def signal(self, signal: int) -> None:
        """Sends a signal, such as `signal.SIGINT`."""
        request = api.SignalProcessRequest(process_id=self.id, signal=int(signal))
        await self._connection.call(methods.SIGNAL_PROCESS, request)

    async def resize(self, rows: int, columns: int) -> None:
        """Tells the size of its terminal."""
        request = api.ResizeTerminalRequest(process_id=self.id, size=api.Terminal(rows=rows, columns=columns))
        await self._connection.call(methods.RESIZE_TERMINAL, request, again=True)


class AsyncInput:
    """Standard input of a process that was started with `stdin=True` or a terminal."""

    def __init__(self, connection: AsyncConnection, process_id: str) -> None:
        self._connection = connection
        self._process_id = process_id

    async def write(self, data: Content) -> int:
        """Writes all of it, waiting while the process does not read. Returns how many bytes were written."""
        return await self._send(_requests.encode(data), close=False)

    async def close(self) -> None:
        """No more input comes."""
        await self._send(b"", close=True)

    async def _send(self, data: bytes, close: bool) -> int:
        async def messages() -> AsyncIterator[api.WriteInputRequest]:
            yield api.WriteInputRequest(process_id=self._process_id, data=data[:PIECE], close=close)
            for start in range(PIECE, len(data), PIECE):
                yield api.WriteInputRequest(data=data[start : start + PIECE])

        return (await self._connection.upload(methods.WRITE_INPUT, messages())).written
