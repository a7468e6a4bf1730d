"""Work that may take its time, such as reading files."""

from __future__ import annotations

from typing import Callable, TypeVar

T = TypeVar("T")


def aside(work: Callable[..., T], *given: object) -> T:
    """Here: whoever calls waits anyway."""
    return work(*given)
