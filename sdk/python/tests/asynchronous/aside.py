"""Work that must not keep the client from its own."""

from __future__ import annotations

import asyncio
from typing import Callable, TypeVar

T = TypeVar("T")


async def aside(work: Callable[[], T]) -> T:
    return await asyncio.to_thread(work)
