"""Work that may take its time, such as reading files."""

from __future__ import annotations

import asyncio
from typing import Callable, TypeVar

T = TypeVar("T")


async def aside(work: Callable[..., T], *given: object) -> T:
    """In a thread, so that the event loop goes on."""
    return await asyncio.to_thread(work, *given)
