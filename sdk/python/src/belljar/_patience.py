"""How long a lost connection is waited for, and which failures mean that it was lost."""

from __future__ import annotations

import time

from belljar._failure import BelljarError
from belljar._generated.codes import CallbackExists, RateLimited, ServerStopping, ServerUnreachable

# Failures after which the same request may succeed, at this server's successor.
LOST = (ServerUnreachable, ServerStopping)

# Failures that pass for who comes again with what was agreed on: a server that lost us lets go before long of what it
# still holds, and the quota has room again.
PASSING = (CallbackExists, RateLimited)

FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


class Patience:
    """Pauses between attempts, until a time is over. Progress starts it anew."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.progress()

    def progress(self) -> None:
        self._end = time.monotonic() + self._seconds
        self._pause = FIRST_PAUSE

    def pause(self, error: BelljarError) -> float:
        """How long to wait before the next attempt, or the error where there is none."""
        if time.monotonic() + self._pause > self._end:
            raise error
        pause, self._pause = self._pause, min(self._pause * 2, LONGEST_PAUSE)
        return pause
