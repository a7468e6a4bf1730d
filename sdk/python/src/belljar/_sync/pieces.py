# Made from src/belljar/_async/pieces.py by mirror.py; change that one.
"""What is written, in pieces of a size that travels well."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

from belljar._requests import encode
from belljar._sync.aside import aside

PIECE = 64 * 1024


def pieces(content: str | bytes | BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    if isinstance(content, (str, bytes, bytearray, memoryview)):
        data = encode(content)
        for start in range(0, len(data), PIECE):
            yield data[start : start + PIECE]
        return
    if hasattr(content, "read"):
        # Asked before the next, as an open file gives lines when it is iterated.
        file = cast(BinaryIO, content)
        while data := aside(file.read, PIECE):
            yield data
        return
    for given in content:
        for start in range(0, len(given), PIECE):
            yield given[start : start + PIECE]
