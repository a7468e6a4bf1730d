"""Conversations as far as they need no server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from belljar import errors
from belljar._async.callbacks import AsyncCallbacks
from belljar._generated import api
from belljar._offer import Offer
from belljar._patience import Patience
from belljar._sync.callbacks import Callbacks


def limited() -> errors.RateLimited:
    return errors.RateLimited("too many requests")


def held() -> errors.CallbackExists:
    return errors.CallbackExists("another client answers for it")


class Call:
    """A conversation in which so many hellos are heard, and one more ends it."""

    def __init__(self, hellos: int, end: errors.BelljarError | None = None) -> None:
        self._hellos = hellos
        self._end = end or limited()
        self._said: asyncio.Queue[Any] = asyncio.Queue()

    async def write(self, message: api.ClientCallback) -> None:
        await self._said.put(message)

    def cancel(self) -> None:
        pass

    async def __aiter__(self) -> AsyncIterator[api.ServerCallback]:
        while True:
            await self._said.get()
            if self._hellos == 0:
                raise self._end
            self._hellos -= 1
            yield api.ServerCallback(ready=api.CallbackReady(sandbox_id="s"))


class Connection:
    """Gives one conversation after the other, or an error in its place."""

    def __init__(self, *conversations: Call | errors.BelljarError) -> None:
        self._conversations = list(conversations)
        self.attached: set[AsyncCallbacks] = set()
        self.all_given = asyncio.Event()

    def patience(self) -> Patience:
        return Patience(60)

    async def both(self, _: Any) -> Call:
        given = self._conversations.pop(0)
        if not self._conversations:
            self.all_given.set()
        if isinstance(given, Call):
            return given
        raise given

    async def recover(self, patience: Patience, error: errors.BelljarError) -> None:
        patience.pause(error)


def test_what_was_agreed_on_outlasts_a_quota_that_is_used_up() -> None:
    async def talk() -> None:
        connection: Any = Connection(Call(1), limited(), limited(), Call(2))
        callbacks = AsyncCallbacks(connection, "s")
        first, second = Offer(), Offer()
        callbacks.change(first)
        await callbacks.settle()
        callbacks.change(second)
        with pytest.raises(errors.RateLimited):
            await callbacks.settle()
        assert callbacks.offer is first
        await asyncio.wait_for(connection.all_given.wait(), 30)
        callbacks.change(second)
        await callbacks.settle()
        assert callbacks.offer is second
        await callbacks.close()

    asyncio.run(talk())


def test_what_another_conversation_agreed_on_is_not_offered_again() -> None:
    async def talk() -> None:
        connection: Any = Connection(Call(1), Call(0, held()), Call(1))
        callbacks = AsyncCallbacks(connection, "s")
        callbacks.change(Offer())
        await callbacks.settle()
        await callbacks.close()
        # Another client answers by now: of what is new nobody waits to see it go.
        callbacks.change(Offer())
        with pytest.raises(errors.CallbackExists):
            await callbacks.settle()
        callbacks.change(Offer())
        await callbacks.settle()
        await callbacks.close()

    asyncio.run(talk())


def test_who_never_got_through_is_told() -> None:
    async def talk() -> None:
        connection: Any = Connection(limited())
        callbacks = AsyncCallbacks(connection, "s")
        callbacks.change(Offer())
        with pytest.raises(errors.RateLimited):
            await callbacks.settle()
        assert not connection.attached

    asyncio.run(talk())


def test_what_the_server_holds_for_a_connection_that_was_lost_refuses_nothing_that_is_new() -> None:
    async def talk() -> None:
        connection: Any = Connection(
            Call(1, errors.ServerUnreachable("lost")), Call(0, held()), Call(2, held()), Call(1)
        )
        callbacks = AsyncCallbacks(connection, "s")
        callbacks.change(Offer())
        await callbacks.settle()
        second = Offer()
        callbacks.change(second)
        await callbacks.settle()
        # The twin: what is refused after what was agreed on is new.
        callbacks.change(Offer())
        with pytest.raises(errors.CallbackExists):
            await callbacks.settle()
        assert callbacks.offer is second
        await callbacks.close()

    asyncio.run(talk())


class Answers:
    """As `Call`, for the blocking client."""

    def __init__(self, hellos: int, end: errors.BelljarError, said: Iterator[api.ClientCallback]) -> None:
        self._hellos = hellos
        self._end = end
        self._said = said

    def __iter__(self) -> Iterator[api.ServerCallback]:
        for _ in range(self._hellos):
            next(self._said)
            yield api.ServerCallback(ready=api.CallbackReady(sandbox_id="s"))
        next(self._said)
        raise self._end

    def cancel(self) -> None:
        pass


class BlockingConnection:
    def __init__(self, *conversations: tuple[int, errors.BelljarError]) -> None:
        self._conversations = list(conversations)
        self.attached: set[Callbacks] = set()

    def patience(self) -> Patience:
        return Patience(60)

    def both(self, _: Any, said: Iterator[api.ClientCallback]) -> Answers:
        if not self._conversations:
            raise errors.ServerUnreachable("lost")
        return Answers(*self._conversations.pop(0), said)

    def recover(self, patience: Patience, error: errors.BelljarError) -> None:
        patience.pause(error)


def test_nor_does_it_for_the_blocking_client() -> None:
    lost = errors.ServerUnreachable("lost")
    connection: Any = BlockingConnection((1, lost), (0, held()), (2, held()))
    callbacks = Callbacks(connection, "s")
    callbacks.change(Offer())
    second = Offer()
    callbacks.change(second)
    with pytest.raises(errors.CallbackExists):
        callbacks.change(Offer())
    assert callbacks.offer is second
    callbacks.close()


class Endless:
    """A conversation in which nothing is said, until it is cancelled."""

    def __init__(self) -> None:
        self._cancelled = threading.Event()

    def __iter__(self) -> Iterator[api.ServerCallback]:
        assert self._cancelled.wait(60)
        yield from ()

    def cancel(self) -> None:
        self._cancelled.set()


class Agreeing(Endless):
    """A conversation in which one hello is heard."""

    def __init__(self, said: Iterator[api.ClientCallback]) -> None:
        super().__init__()
        self._said = said

    def __iter__(self) -> Iterator[api.ServerCallback]:
        next(self._said)
        yield api.ServerCallback(ready=api.CallbackReady(sandbox_id="s"))
        yield from super().__iter__()


def test_nor_does_the_blocking_client_offer_what_another_conversation_agreed_on() -> None:
    class Between(BlockingConnection):
        """One conversation is refused, those around it are not."""

        def __init__(self) -> None:
            super().__init__()
            self.calls = 0

        def both(self, _: Any, said: Iterator[api.ClientCallback]) -> Any:
            self.calls += 1
            return Answers(0, held(), said) if self.calls == 2 else Agreeing(said)

    connection: Any = Between()
    callbacks = Callbacks(connection, "s")
    callbacks.change(Offer())
    callbacks.close()
    with pytest.raises(errors.CallbackExists):
        callbacks.change(Offer())
    callbacks.change(Offer())
    callbacks.close()
    # Nobody waited for an answer, so nobody is told that there is none.
    callbacks.settle()
    assert connection.calls == 3


def test_the_blocking_client_can_be_closed_while_it_connects_again() -> None:
    class Slow(BlockingConnection):
        """Connects again when it is told to."""

        connects, go_on = threading.Event(), threading.Event()

        def both(self, _: Any, said: Iterator[api.ClientCallback]) -> Any:
            if self._conversations:
                return super().both(_, said)
            self.connects.set()
            assert self.go_on.wait(60)
            return Endless()

    connection: Any = Slow((1, errors.ServerUnreachable("lost")))
    callbacks = Callbacks(connection, "s")
    callbacks.change(Offer())

    def change() -> None:
        with pytest.raises(errors.ServerUnreachable):
            callbacks.change(Offer())

    changing = threading.Thread(target=change, daemon=True)
    changing.start()
    assert connection.connects.wait(60)
    conversation = callbacks._conversation
    closing = threading.Thread(target=callbacks.close)
    closing.start()
    while callbacks._conversation is not None:
        assert closing.is_alive()
    connection.go_on.set()
    assert conversation is not None
    conversation.join(60)
    assert not conversation.is_alive()
    closing.join(60)
    changing.join(60)
    assert not changing.is_alive()
