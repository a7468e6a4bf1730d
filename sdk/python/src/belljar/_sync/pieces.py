# Made from src/belljar/_async/pieces.py by mirror.py; change that one.
"""What is written, in pieces of a size that travels well."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

from belljar._file import Outgoing
from belljar._pack import Packed
from belljar._requests import encode
from belljar._sync.aside import aside

PIECE = 64 * 1024

# What any thread may read. Others may be bound to the one that opened them, as what SQLite has is.
_FREE = (io.IOBase, Outgoing, Packed)


def pieces(content: str | bytes | BinaryIO | Iterable[bytes]) -> Iterator[bytes]:
    if isinstance(content, (str, bytes, bytearray, memoryview)):
        data = encode(content)
        for start in range(0, len(data), PIECE):
            yield data[start : start + PIECE]
        return
    if hasattr(content, "read"):
        # Asked before the next, as an open file gives lines when it is iterated.
        file = cast(BinaryIO, content)
        while data := _read(file):
            yield data
        return
    for given in content:
        for start in range(0, len(given), PIECE):
            yield given[start : start + PIECE]


def _read(file: BinaryIO) -> bytes:
    # A temporary file with a name has the open file in it.
    free = isinstance(getattr(file, "file", file), _FREE)
    return aside(file.read, PIECE) if free else file.read(PIECE)
