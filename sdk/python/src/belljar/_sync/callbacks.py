"""The conversation in which the server asks and functions of this process answer. It is held as long as the sandbox."""

from __future__ import annotations

import asyncio
import inspect
import queue
import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc

from belljar._failure import BelljarError, of_call
from belljar._generated import api, methods
from belljar._generated.codes import ServerUnreachable
from belljar._offer import Offer, failed
from belljar._patience import LOST, PASSING, Patience
from belljar._sync.connection import Connection

# Functions that are at work at the same time.
WORKERS = 32

Outgoing = queue.SimpleQueue[Any]


class Callbacks:
    """What this client answers for in one sandbox. Functions run in threads of their own."""

    def __init__(self, connection: Connection, sandbox_id: str) -> None:
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
        self._news = threading.Condition()
        self._error: BelljarError | None = None
        self._outgoing: Outgoing = queue.SimpleQueue()
        self._call: Any = None
        self._conversation: threading.Thread | None = None
        self._workers: ThreadPoolExecutor | None = None
        self._answers: dict[int, Future[None]] = {}

    def change(self, offer: Offer) -> None:
        """Offers something else. Returns once the server knows; where it refuses, the one before holds."""
        with self._news:
            self.offer = offer
            self._offered += 1
            if self._conversation is None:
                self._connection.attached.add(self)
                self._workers = ThreadPoolExecutor(WORKERS, thread_name_prefix="belljar-callback")
                self._taken = None
                self._conversation = threading.Thread(target=self._converse, name="belljar-callbacks", daemon=True)
                self._conversation.start()
            else:
                self._say_hello()
        self.settle()

    def settle(self) -> None:
        """Returns once the server knows the offer as it is."""
        with self._news:
            while self._known < self._offered:
                self._news.wait()
            if self._error is not None:
                error, self._error = self._error, None
                raise error

    def close(self) -> None:
        with self._news:
            conversation, self._conversation = self._conversation, None
            call, workers = self._call, self._workers
        self._connection.attached.discard(self)
        if conversation is None:
            return
        if call is not None:
            call.cancel()
        if workers is not None:
            workers.shutdown(wait=False, cancel_futures=True)
        if conversation is not threading.current_thread():
            conversation.join(10)

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
        self._outgoing.put(offer.hello(self._sandbox_id))

    def _converse(self) -> None:
        patience = self._connection.patience()
        try:
            while True:
                with self._news:
                    if self._is_over():
                        raise ServerUnreachable("the conversation was closed")
                    self._outgoing = queue.SimpleQueue()
                    self._told.clear()
                    self._introduce()
                error = self._once(patience)
                if self._is_over():
                    raise error
                # The server answers in the order in which it was told.
                new = bool(self._told) and self._told[0][1] is not self._taken
                if isinstance(error, LOST) or (isinstance(error, PASSING) and not new):
                    self._connection.recover(patience, error)
                elif self._taken is not None and new:
                    self._refused(error, self._taken)
                else:
                    raise error
        except BelljarError as error:
            with self._news:
                if self._is_over() and self._conversation is not None:
                    # Another one has begun.
                    return
                closed, self._conversation = self._is_over(), None
                self._connection.attached.discard(self)
                # Of one that was closed, only who waits is to hear.
                if not closed or self._known < self._offered:
                    self._refused(error, self._agreed or Offer())

    def _is_over(self) -> bool:
        """Whether the conversation of this thread was closed, also where there is another one by now."""
        return self._conversation is not threading.current_thread()

    def _refused(self, error: BelljarError, agreed: Offer) -> None:
        with self._news:
            self._error, self.offer, self._known = error, agreed, self._offered
            self._news.notify_all()

    def _once(self, patience: Patience) -> BelljarError:
        outgoing, call = self._outgoing, None
        try:
            call = self._connection.both(methods.SERVE, self._messages(outgoing))
            with self._news:
                over = self._is_over()
                if not over:
                    self._call = call
            if over:
                # Who closed meanwhile found no call to cancel.
                call.cancel()
            for message in call:
                patience.progress()
                self._take(message)
            return ServerUnreachable("the server ended the conversation")
        except grpc.RpcError as error:
            return of_call(error)
        except ValueError as error:
            return ServerUnreachable("the connection was closed", cause=str(error))
        except BelljarError as error:
            return error
        finally:
            with self._news:
                if not self._is_over():
                    self._call = None
                    self._answers.clear()
            if call is not None:
                call.cancel()
            outgoing.put(None)

    @staticmethod
    def _messages(outgoing: Outgoing) -> Iterator[api.ClientCallback]:
        yield from iter(outgoing.get, None)

    def _take(self, message: api.ServerCallback) -> None:
        if message.HasField("ready"):
            with self._news:
                self._known, self._taken = self._told.popleft()
                self._agreed = self._taken
                self._news.notify_all()
        elif message.HasField("call"):
            workers = self._workers
            with self._news:
                if workers is not None and self._conversation is not None:
                    self._answers[message.call.call_id] = workers.submit(self._answer, message.call, self._outgoing)
        elif message.HasField("cancel"):
            with self._news:
                future = self._answers.pop(message.cancel.call_id, None)
            if future is not None:
                # One that runs already goes on, and its answer is ignored.
                future.cancel()

    def _answer(self, call: api.CallbackCall, outgoing: Outgoing) -> None:
        try:
            question = self.offer.question(call)
            value = question.function(*question.arguments, **question.named)
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            answer = question.answer(value)
        except Exception as error:
            answer = failed(call, error)
        with self._news:
            self._answers.pop(call.call_id, None)
        outgoing.put(api.ClientCallback(answer=answer))


async def _awaited(value: Any) -> Any:
    return await value
