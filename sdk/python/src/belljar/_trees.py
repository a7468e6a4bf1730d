"""Trees of this machine, packed and unpacked. An archive from a sandbox is not trusted."""

from __future__ import annotations

import os
import tarfile
import tempfile
from typing import BinaryIO, cast

from belljar._lent import Lent
from belljar._pack import Packed as Packed
from belljar._unpack import unpack

# What is larger is kept in a file meanwhile.
IN_MEMORY = 16 * 1024 * 1024


class Unpacking:
    """An archive that comes in pieces, and is unpacked when all of it is there.

    It may be closed by another thread than writes and unpacks, which stops before long and is not waited for.
    """

    def __init__(self) -> None:
        self._spool = cast(BinaryIO, tempfile.SpooledTemporaryFile(max_size=IN_MEMORY))  # noqa: SIM115
        self._lent = Lent("the archive", self._spool.close)

    def write(self, piece: bytes) -> None:
        with self._lent.at_work():
            self._spool.write(piece)

    def unpack(self, target: str | os.PathLike[str]) -> None:
        """Below `target`, which is made where it is missing."""
        with self._lent.at_work():
            self._spool.seek(0)
            os.makedirs(target, exist_ok=True)
            with tarfile.open(fileobj=cast(BinaryIO, _Wanted(self._spool, self._lent)), mode="r") as archive:
                unpack(archive, target)

    def close(self) -> None:
        self._lent.end()


class _Wanted:
    """A file that is read only as long as somebody wants it."""

    def __init__(self, file: BinaryIO, lent: Lent) -> None:
        self._file = file
        self._lent = lent
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int = -1) -> bytes:
        self._lent.go_on()
        return self._file.read(size)
