"""What is written, in pieces of a size that travels well."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator
from typing import BinaryIO, cast

from belljar._async.aside import aside
from belljar._requests import encode

PIECE = 64 * 1024


async def pieces(content: str | bytes | BinaryIO | AsyncIterable[bytes]) -> AsyncIterator[bytes]:
    if isinstance(content, (str, bytes, bytearray, memoryview)):
        data = encode(content)
        for start in range(0, len(data), PIECE):
            yield data[start : start + PIECE]
        return
    if hasattr(content, "read"):
        # Asked before the next, as an open file gives lines when it is iterated.
        file = cast(BinaryIO, content)
        while data := await aside(file.read, PIECE):
            yield data
        return
    async for given in content:
        for start in range(0, len(given), PIECE):
            yield given[start : start + PIECE]
