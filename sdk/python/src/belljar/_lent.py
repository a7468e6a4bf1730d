"""What threads are at work with may be given up meanwhile. Nobody waits for them then: whoever is last closes it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Callable


class Lent:
    """One thread at a time is at work with something. Any may end it."""

    def __init__(self, what: str, close: Callable[[], object]) -> None:
        self._what = what
        self._close = close
        self._lock = threading.Lock()
        self._closed = False
        # Set without the lock, so that whoever is at work can look.
        self._over = False

    @contextmanager
    def at_work(self) -> Iterator[None]:
        try:
            with self._lock:
                self.go_on()
                yield
        finally:
            if self._over:
                self._last()

    def go_on(self) -> None:
        """Asked now and then by who is at work for long: fails where nobody wants it any more."""
        if self._over:
            raise ValueError(f"{self._what} is closed")

    def end(self) -> None:
        self._over = True
        self._last()

    def _last(self) -> None:
        # Where it is taken, whoever is at work comes here next.
        if self._lock.acquire(blocking=False):
            try:
                if not self._closed:
                    self._closed = True
                    self._close()
            finally:
                self._lock.release()
