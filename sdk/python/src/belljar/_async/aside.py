"""Work that may take its time, such as reading files."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import Future
from typing import Callable, TypeVar

T = TypeVar("T")


async def aside(work: Callable[..., T], *given: object) -> T:
    """In a thread of its own, so that the event loop goes on.

    What never ends, as a read of a pipe that says nothing, takes none of the loop's own threads, which everybody else
    shares, and holds up neither the loop's end nor the program's.
    """
    done: Future[T] = Future()
    # Nothing calls it off: who gives it up only does not wait.
    done.set_running_or_notify_cancel()

    def run() -> None:
        try:
            value = work(*given)
        except BaseException as error:
            done.set_exception(error)
        else:
            done.set_result(value)

    context = contextvars.copy_context()
    threading.Thread(target=context.run, args=(run,), name="belljar-aside", daemon=True).start()
    return await asyncio.wrap_future(done)
