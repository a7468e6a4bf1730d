"""Work that must not keep the client from its own, which has threads for it."""

from __future__ import annotations

from typing import Callable, TypeVar

T = TypeVar("T")


def aside(work: Callable[[], T]) -> T:
    return work()
