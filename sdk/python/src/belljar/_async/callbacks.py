"""The conversation in which the server asks and functions of this process answer. It is held as long as the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections import deque
from typing import Any

import grpc

from belljar._async.connection import AsyncConnection
from belljar._failure import BelljarError, of_call
from belljar._generated import api, methods
from belljar._generated.codes import ServerUnreachable
from belljar._offer import Offer, failed
from belljar._patience import LOST, PASSING, Patience


class AsyncCallbacks:
    """What this client answers for in one sandbox."""

    def __init__(self, connection: AsyncConnection, sandbox_id: str) -> None:
        self._connection = connection
        self._sandbox_id = sandbox_id
        self.offer = Offer()
        self._agreed: Offer | None = None
        # The same, in the conversation that there is: what another one agreed on is nothing to its server.
        self._taken: Offer | None = None
        # Each change of the offer has a number; the server has said that it knows of one.
        self._offered = 0
        self._known = 0
        self._told: deque[tuple[int, Offer]] = deque()
        self._news = asyncio.Event()
        self._error: BelljarError | None = None
        self._outgoing: asyncio.Queue[api.ClientCallback] = asyncio.Queue()
        self._conversation: asyncio.Task[None] | None = None
        self._answers: dict[int, asyncio.Task[None]] = {}

    def change(self, offer: Offer) -> None:
        """Offers something else. The server learns of it, at the latest before the next command."""
        self.offer = offer
        self._offered += 1
        if self._conversation is None:
            self._connection.attached.add(self)
            self._conversation = asyncio.get_running_loop().create_task(self._converse())
        else:
            self._say_hello()

    async def settle(self) -> None:
        """Returns once the server knows the offer as it is. Where it was refused, the one before holds."""
        while self._known < self._offered:
            self._news.clear()
            await self._news.wait()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    async def close(self) -> None:
        conversation, self._conversation = self._conversation, None
        self._connection.attached.discard(self)
        if conversation is not None:
            conversation.cancel()
            await asyncio.gather(conversation, return_exceptions=True)

    def _say_hello(self) -> None:
        self._tell(self._offered, self.offer)

    def _introduce(self) -> None:
        """What was agreed on comes first: until the server has seen the old connection go, it refuses that, and what is
        new is none the worse for it.
        """
        if self._taken is not None and self._taken is not self.offer:
            self._tell(self._known, self._taken)
        self._say_hello()

    def _tell(self, number: int, offer: Offer) -> None:
        self._told.append((number, offer))
        self._outgoing.put_nowait(offer.hello(self._sandbox_id))

    async def _converse(self) -> None:
        patience = self._connection.patience()
        self._taken = None
        try:
            while True:
                self._outgoing = asyncio.Queue()
                self._told.clear()
                self._introduce()
                error = await self._once(patience)
                # The server answers in the order in which it was told.
                new = bool(self._told) and self._told[0][1] is not self._taken
                if isinstance(error, LOST) or (isinstance(error, PASSING) and not new):
                    await self._connection.recover(patience, error)
                elif self._taken is not None and new:
                    self._refused(error, self._taken)
                else:
                    raise error
        except BelljarError as error:
            self._conversation = None
            self._connection.attached.discard(self)
            self._refused(error, self._agreed or Offer())

    def _refused(self, error: BelljarError, agreed: Offer) -> None:
        self._error, self.offer, self._known = error, agreed, self._offered
        self._news.set()

    async def _once(self, patience: Patience) -> BelljarError:
        writer: asyncio.Task[None] | None = None
        try:
            call = await self._connection.both(methods.SERVE)
            writer = asyncio.create_task(self._write(call, self._outgoing))
            async for message in call:
                patience.progress()
                self._take(message)
            return ServerUnreachable("the server ended the conversation")
        except grpc.RpcError as error:
            return of_call(error)
        except BelljarError as error:
            return error
        finally:
            if writer is not None:
                call.cancel()
                writer.cancel()
            for task in self._answers.values():
                task.cancel()
            self._answers.clear()

    @staticmethod
    async def _write(call: Any, outgoing: asyncio.Queue[api.ClientCallback]) -> None:
        # Whoever reads hears of a call that broke.
        with contextlib.suppress(grpc.RpcError, asyncio.InvalidStateError):
            while True:
                await call.write(await outgoing.get())

    def _take(self, message: api.ServerCallback) -> None:
        if message.HasField("ready"):
            self._known, self._taken = self._told.popleft()
            self._agreed = self._taken
            self._news.set()
        elif message.HasField("call"):
            number = message.call.call_id
            self._answers[number] = asyncio.create_task(self._answer(message.call))
        elif message.HasField("cancel"):
            task = self._answers.pop(message.cancel.call_id, None)
            if task is not None:
                task.cancel()

    async def _answer(self, call: api.CallbackCall) -> None:
        outgoing = self._outgoing
        try:
            question = self.offer.question(call)
            if inspect.iscoroutinefunction(question.function):
                value = await question.function(*question.arguments, **question.named)
            else:
                value = await asyncio.to_thread(question.function, *question.arguments, **question.named)
                if inspect.isawaitable(value):
                    value = await value
            answer = question.answer(value)
        except Exception as error:
            answer = failed(call, error)
        self._answers.pop(call.call_id, None)
        outgoing.put_nowait(api.ClientCallback(answer=answer))
