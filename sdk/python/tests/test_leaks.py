"""A client that makes and destroys many sandboxes keeps nothing of them: no memory, no descriptors, no threads."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path

import pytest

from belljar import AsyncBelljar, Belljar

# As many as fit into a test run; 2,000 by hand.
COUNT = int(os.environ.get("BELLJAR_TEST_LEAK_COUNT", "0"))
SECONDS = 8.0


def resident() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def rounds() -> range:
    return range(COUNT or 100_000)


def enough(begun: float, number: int) -> bool:
    return not COUNT and number >= 20 and time.monotonic() - begun > SECONDS


def verify(before: tuple[int, int, int], number: int) -> None:
    grown = resident() - before[0]
    print(f"{number} sandboxes: {grown / 1024:.0f} KiB more")
    # What the allocator and gRPC keep for reuse does not grow with the number.
    assert grown < (8 << 20), f"{grown} bytes more after {number} sandboxes"
    assert descriptors() <= before[1] + 1
    assert threading.active_count() <= before[2] + 1


def test_the_blocking_client_keeps_nothing(own_state: Path) -> None:
    with Belljar(state_dir=own_state) as client:
        for number in rounds():
            with client.sandboxes.create(tools={"f": lambda x: x} if number % 2 else {}) as sandbox:
                sandbox.run(["true"])
            if number == 10:
                before = (resident(), descriptors(), threading.active_count())
                begun = time.monotonic()
            if number > 10 and enough(begun, number):
                break
        verify(before, number)
        assert client.sandboxes.list() == []


@pytest.mark.asyncio
async def test_the_asynchronous_client_keeps_nothing(own_state: Path) -> None:
    async with AsyncBelljar(state_dir=own_state) as client:
        for number in rounds():
            async with await client.sandboxes.create(tools={"f": lambda x: x} if number % 2 else {}) as sandbox:
                await sandbox.run(["true"])
            if number == 10:
                before = (resident(), descriptors(), threading.active_count())
                begun = time.monotonic()
            if number > 10 and enough(begun, number):
                break
        verify(before, number)
        assert await client.sandboxes.list() == []
