"""One file of this machine, sent or saved.

A sandbox may share its directory, so what it is, is known from what was opened.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from pathlib import PurePath

from belljar._generated.codes import Interrupted, InvalidArgument
from belljar._lent import Lent
from belljar._unpack import shown

_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITE = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC

_SPECIAL_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC

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


class Incoming:
    """A file that becomes `target`, with the permissions `mode` under the umask, once it is complete; a directory takes
    nothing. A link in its place gives way.

    What is a pipe or a device takes all that is written, as it comes. It may be closed by another thread than opens and
    writes it, and does not wait for that one.
    """

    def __init__(self, target: str | os.PathLike[str], mode: int) -> None:
        self._target = target
        self._mode = mode
        self._descriptor = -1
        # The name that it has until it is complete.
        self._unfinished: str | None = None
        self._lent = Lent("the file", self._close)

    def open(self) -> None:
        with self._lent.at_work():
            if _is_special(self._target):
                self._descriptor = os.open(self._target, _SPECIAL_WRITE, 0o666)
            elif _is_pipe_or_device(_kind(self._target)):
                self._descriptor = _pipe_or_device(self._target)
            else:
                directory = os.path.dirname(os.path.abspath(self._target))
                os.makedirs(directory, exist_ok=True)
                unfinished = os.path.join(directory, f".belljar-{secrets.token_hex(8)}")
                # The umask takes away what it does; who owns it can read and write it. As with `belljar cp`.
                self._descriptor = os.open(unfinished, _MAKE, self._mode & 0o777 | 0o600)
                self._unfinished = unfinished

    def write(self, piece: bytes) -> None:
        with self._lent.at_work():
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]

    def finish(self) -> None:
        """All of it was written."""
        with self._lent.at_work():
            if self._unfinished is not None:
                # Some file systems tell only now that there is no room.
                descriptor, self._descriptor = self._descriptor, -1
                os.close(descriptor)
                os.replace(self._unfinished, self._target)
                self._unfinished = None

    def close(self) -> None:
        self._lent.end()

    def _close(self) -> None:
        try:
            if self._descriptor >= 0:
                os.close(self._descriptor)
        finally:
            if self._unfinished is not None:
                # A sandbox that shares the directory may have removed it, which is no failure of what went before.
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._unfinished)


def _kind(target: str | os.PathLike[str]) -> int:
    """What is there, and not behind a link; 0 for nothing."""
    try:
        return os.lstat(target).st_mode
    except OSError:
        return 0


def _is_pipe_or_device(kind: int) -> bool:
    return stat.S_ISFIFO(kind) or stat.S_ISCHR(kind) or stat.S_ISBLK(kind)


def _pipe_or_device(target: str | os.PathLike[str]) -> int:
    """Opens what takes all that is written. A pipe that nobody reads would be waited for without end."""
    name = shown(os.fspath(target))
    try:
        descriptor = os.open(target, _WRITE)
    except OSError as error:
        if error.errno != errno.ENXIO:
            raise
        raise InvalidArgument(f"nobody reads from the pipe `{name}`", remedy="start its reader first") from error
    try:
        if not _is_pipe_or_device(os.fstat(descriptor).st_mode):
            raise Interrupted(f"`{name}` was replaced by something else", remedy="try again")
        os.set_blocking(descriptor, True)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _is_special(path: str | os.PathLike[str]) -> bool:
    return str(PurePath(path).parent) in _SPECIAL
