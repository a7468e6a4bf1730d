"""Work in threads of the asynchronous client's own."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

from belljar._async.aside import aside

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
