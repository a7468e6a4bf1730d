"""Packs a directory of this machine for a sandbox.

Another sandbox may have the same directory and change it meanwhile. So directories are entered by descriptor, one name
at a time and never through a link, and whatever is read was opened the same way: nothing from outside goes along. The
archive is made as it is read, a piece at a time: how large files are is somebody else's word, too.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from belljar._generated.codes import ArchiveRefused, Interrupted
from belljar._lent import Lent
from belljar._unpack import shown, stays_inside

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


# Directories in each other; a sandbox takes no more.
_DEEPEST = 128
# Content is read in pieces of this size.
_PIECE = 256 * 1024


class Packed:
    """Everything below `source` as an archive to be read, by names relative to it.

    What a sandbox would refuse is left out and counted. It may be closed by another thread than reads it,
    and does not wait for that one.
    """

    def __init__(self, source: str | os.PathLike[str]) -> None:
        self._lent = Lent("the archive", lambda: self._pieces.close())
        self._packing = _Packing(self._lent)
        self._pieces = self._packing.tree(source)
        self._held = bytearray()

    def read(self, size: int) -> bytes:
        """So many bytes, and fewer only at the end."""
        # Where it is closed, that is not the end of it.
        with self._lent.at_work():
            while len(self._held) < size:
                piece = next(self._pieces, None)
                if piece is None:
                    break
                self._held += piece
            data = bytes(self._held[:size])
            del self._held[:size]
            return data

    @property
    def left_out(self) -> int:
        """Devices, pipes, sockets, and links that lead out, so far."""
        return self._packing.left_out

    def close(self) -> None:
        self._lent.end()


class _Packing:
    def __init__(self, lent: Lent) -> None:
        self._lent = lent
        # Files with several names are sent once.
        self._known: dict[tuple[int, int], str] = {}
        self.left_out = 0

    def tree(self, source: str | os.PathLike[str]) -> Generator[bytes, None, None]:
        root = os.open(source, _DIRECTORY)
        try:
            yield from self.all(root, "", 0)
        finally:
            os.close(root)
        yield bytes(2 * tarfile.BLOCKSIZE)

    def all(self, directory: int, prefix: str, depth: int) -> Iterator[bytes]:
        for name in sorted(os.listdir(directory)):
            # Where much is left out, much happens before there is a piece.
            self._lent.go_on()
            yield from self._entry(directory, name, prefix + name, depth)

    def _entry(self, directory: int, name: str, path: str, depth: int) -> Iterator[bytes]:
        if depth >= _DEEPEST:
            raise ArchiveRefused(f"`{shown(path)}`: it is too deep for an archive")
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            with _opened(directory, name, path, stat.S_IFDIR) as (inner, found):
                yield _header(path, found, tarfile.DIRTYPE)
                yield from self.all(inner, path + "/", depth + 1)
        elif stat.S_ISLNK(found.st_mode):
            target = os.readlink(name, dir_fd=directory)
            if stays_inside(target, depth):
                yield _header(path, found, tarfile.SYMTYPE, link=target)
            else:
                self.left_out += 1
        elif stat.S_ISREG(found.st_mode):
            with _opened(directory, name, path, stat.S_IFREG) as (file, found):
                yield from self._file(file, path, found)
        else:
            self.left_out += 1

    def _file(self, file: int, path: str, found: os.stat_result) -> Iterator[bytes]:
        if found.st_nlink > 1:
            known = self._known.setdefault((found.st_dev, found.st_ino), path)
            if known != path:
                yield _header(path, found, tarfile.LNKTYPE, link=known)
                return
        yield _header(path, found, tarfile.REGTYPE, size=found.st_size)
        left = found.st_size
        while left > 0:
            piece = os.read(file, min(left, _PIECE))
            if not piece:
                raise Interrupted(f"`{shown(path)}` became shorter while it was read")
            left -= len(piece)
            yield piece
        yield bytes(-found.st_size % tarfile.BLOCKSIZE)


@contextmanager
def _opened(directory: int, name: str, path: str, kind: int) -> Iterator[tuple[int, os.stat_result]]:
    """What was seen to be of a kind, if it still is. A pipe in its place does not keep anybody waiting."""
    try:
        descriptor = os.open(name, _OPEN, dir_fd=directory)
    except OSError as error:
        # A link; a socket.
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise _replaced(path) from error
        error.filename = path
        raise
    try:
        found = os.fstat(descriptor)
        if stat.S_IFMT(found.st_mode) != kind:
            raise _replaced(path)
        yield descriptor, found
    finally:
        os.close(descriptor)


def _header(path: str, found: os.stat_result, kind: bytes, *, size: int = 0, link: str = "") -> bytes:
    info = tarfile.TarInfo(path)
    info.type, info.size, info.linkname = kind, size, link
    info.mode = stat.S_IMODE(found.st_mode)
    info.uid, info.gid = found.st_uid, found.st_gid
    # As a number with a fraction it would need a header of its own.
    info.mtime = int(found.st_mtime)
    return info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def _replaced(path: str) -> Interrupted:
    return Interrupted(f"`{shown(path)}` was replaced by something else while it was read")
