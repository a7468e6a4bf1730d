"""Work in threads of the asynchronous client's own."""

from __future__ import annotations

import asyncio
import contextvars
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from belljar import _file, _pack
from belljar._async.aside import aside
from belljar._async.pieces import pieces

# Gives up a read that never ends, and ends itself.
GIVES_UP = """
import asyncio, os, threading
from belljar._async.aside import aside

reader, writer = os.pipe()
began = threading.Event()

def read():
    began.set()
    os.read(reader, 1)

async def give_up():
    reading = asyncio.ensure_future(aside(read))
    while not began.is_set():
        await asyncio.sleep(0)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)

asyncio.run(give_up())
print("over")
"""


def test_a_read_that_never_ends_holds_up_neither_the_loop_nor_the_program() -> None:
    ended = subprocess.run([sys.executable, "-c", GIVES_UP], stdout=subprocess.PIPE, timeout=60, check=True)
    assert ended.stdout == b"over\n"


def test_slow_readers_wait_for_no_others() -> None:
    # More than the loop has threads of its own; each goes on when all are there.
    many = 40 + (os.cpu_count() or 1)
    together = threading.Barrier(many, timeout=60)

    async def all_at_once() -> None:
        await asyncio.gather(*(aside(together.wait) for _ in range(many)))

    asyncio.run(all_at_once())


def test_what_comes_of_it_is_told() -> None:
    async def work() -> None:
        assert await aside(divmod, 7, 2) == (3, 1)
        try:
            await aside(divmod, 1, 0)
        except ZeroDivisionError:
            return
        raise AssertionError("nothing failed")

    asyncio.run(work())


def test_what_is_told_by_context_is_known_aside() -> None:
    told = contextvars.ContextVar("told", default="nothing")

    async def work() -> str:
        told.set("something")
        return await aside(told.get)

    assert asyncio.run(work()) == "something"


class Bound:
    """Read by the thread that made it, and by no other; as a blob of SQLite."""

    def __init__(self, content: bytes) -> None:
        self._rest = content
        self._thread = threading.get_ident()

    def read(self, size: int) -> bytes:
        assert threading.get_ident() == self._thread
        piece, self._rest = self._rest[:size], self._rest[size:]
        return piece


def test_what_is_bound_to_a_thread_is_read_there() -> None:
    async def read() -> None:
        content: Any = Bound(bytes(200_000))
        assert b"".join([piece async for piece in pieces(content)]) == bytes(200_000)

    asyncio.run(read())


def opened(path: Path) -> _file.Outgoing:
    file = _file.Outgoing(path)
    assert file.open()
    return file


def temporary(path: Path) -> Any:
    file = tempfile.NamedTemporaryFile()  # noqa: SIM115
    file.write(path.read_bytes())
    file.seek(0)
    return file


@pytest.mark.parametrize(
    "make", [lambda path: path.open("rb"), temporary, opened, lambda path: _pack.Packed(path.parent)]
)
def test_files_are_read_aside(make: Callable[[Path], Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(200_000))
    threads = set()

    async def read() -> None:
        with closing(make(tmp_path / "file")) as file:
            given = file.read

            def noted(size: int) -> bytes:
                threads.add(threading.current_thread())
                return bytes(given(size))

            file.read = noted
            assert sum([len(piece) async for piece in pieces(file)]) >= 200_000

    asyncio.run(read())
    assert threads
    assert threading.current_thread() not in threads
