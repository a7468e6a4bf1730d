"""One file of this machine, sent. A sandbox may share its directory: what it is, is known from what was opened."""

from __future__ import annotations

import os
import stat
from pathlib import PurePath

from belljar._generated.codes import InvalidArgument
from belljar._lent import Lent
from belljar._unpack import shown

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# Where links are the system's own: `/dev/stdin`, `/dev/fd/3`. Not `/dev/shm`, where everybody makes them.
_SPECIAL = ("/dev", "/dev/fd", "/dev/pts", "/proc/self/fd")


class Outgoing:
    """A file to be sent. It may be closed by another thread than opens and reads it, and does not wait for that one."""

    def __init__(self, source: str | os.PathLike[str]) -> None:
        self._source = source
        self._descriptor = -1
        self._lent = Lent("the file", self._close)
        self.mode = 0

    def open(self) -> bool:
        """Whether there is something to read, which is not so of a directory.

        No pipe is waited for, except where links are the system's own and a shell put one there.
        """
        with self._lent.at_work():
            self._descriptor = os.open(self._source, _READ)
            found = os.fstat(self._descriptor).st_mode
            if stat.S_ISFIFO(found) and not _is_special(self._source):
                name = shown(os.fspath(self._source))
                raise InvalidArgument(f"`{name}` is a pipe", remedy="open it, and `write` what it gives")
            os.set_blocking(self._descriptor, True)
            self.mode = found & 0o777
            return not stat.S_ISDIR(found)

    def read(self, size: int) -> bytes:
        with self._lent.at_work():
            return os.read(self._descriptor, size)

    def close(self) -> None:
        self._lent.end()

    def _close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)


def _is_special(path: str | os.PathLike[str]) -> bool:
    return str(PurePath(path).parent) in _SPECIAL
