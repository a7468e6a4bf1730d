"""Functions that sandboxes call in the tests, the same for both clients: plain ones and one that is awaited."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass

POLICY = {
    "name": "with-tools",
    "version": "1.0",
    "defaults": {"action": "allow"},
    "tool_allowlist": ["add", "fetch", "fail", "move"],
}


def call(name: str, patient: bool = False, **arguments: object) -> str:
    """Code for inside that calls a tool, again for a while where it is patient, and tells what came of it."""
    return f"""
import time
from belljar_tools import ToolError, call
deadline = time.monotonic() + {20 if patient else 0}
while True:
    try:
        print(call({name!r}, **{arguments!r}))
        break
    except ToolError as error:
        if time.monotonic() >= deadline:
            print("refused:", error)
            break
        time.sleep(0.05)
"""


def add(a: int, b: int = 1) -> int:
    """Adds two numbers."""
    return a + b


async def fetch(key: str) -> dict[str, str]:
    await asyncio.sleep(0.01)
    return {"key": key, "pid": str(os.getpid())}


def fail() -> None:
    raise KeyError("nothing here")


@dataclass
class Point:
    x: int
    y: int
