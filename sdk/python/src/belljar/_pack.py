"""Packs a directory of this machine for a sandbox.

Another sandbox may have the same directory and change it meanwhile. So directories are entered by descriptor, one name
at a time and never through a link, and whatever is read was opened the same way: nothing from outside goes along.
"""

from __future__ import annotations

import errno
import os
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager

from belljar._generated.codes import Interrupted

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
# A sandbox refuses them, and says which.
_SPECIAL = {stat.S_IFIFO: tarfile.FIFOTYPE, stat.S_IFCHR: tarfile.CHRTYPE, stat.S_IFBLK: tarfile.BLKTYPE}


def pack(archive: tarfile.TarFile, source: str | os.PathLike[str]) -> None:
    """Adds everything below `source`, by names relative to it."""
    root = os.open(source, _DIRECTORY)
    try:
        _Packing(archive).all(root, "")
    finally:
        os.close(root)


class _Packing:
    def __init__(self, archive: tarfile.TarFile) -> None:
        self._archive = archive
        # Files with several names are sent once.
        self._known: dict[tuple[int, int], str] = {}

    def all(self, directory: int, prefix: str) -> None:
        for name in sorted(os.listdir(directory)):
            self._entry(directory, name, prefix + name)

    def _entry(self, directory: int, name: str, path: str) -> None:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if stat.S_ISDIR(found.st_mode):
            with _opened(directory, name, path, stat.S_IFDIR) as (inner, found):
                self._archive.addfile(_info(path, found, tarfile.DIRTYPE))
                self.all(inner, path + "/")
        elif stat.S_ISLNK(found.st_mode):
            info = _info(path, found, tarfile.SYMTYPE)
            info.linkname = os.readlink(name, dir_fd=directory)
            self._archive.addfile(info)
        elif stat.S_ISREG(found.st_mode):
            with _opened(directory, name, path, stat.S_IFREG) as (file, found):
                self._file(file, path, found)
        elif stat.S_IFMT(found.st_mode) in _SPECIAL:
            self._archive.addfile(_info(path, found, _SPECIAL[stat.S_IFMT(found.st_mode)]))

    def _file(self, file: int, path: str, found: os.stat_result) -> None:
        if found.st_nlink > 1:
            known = self._known.setdefault((found.st_dev, found.st_ino), path)
            if known != path:
                info = _info(path, found, tarfile.LNKTYPE)
                info.linkname = known
                self._archive.addfile(info)
                return
        info = _info(path, found, tarfile.REGTYPE)
        info.size = found.st_size
        with os.fdopen(file, "rb", closefd=False) as content:
            self._archive.addfile(info, content)


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


def _info(path: str, found: os.stat_result, kind: bytes) -> tarfile.TarInfo:
    info = tarfile.TarInfo(path)
    info.type = kind
    info.mode = stat.S_IMODE(found.st_mode)
    info.uid, info.gid = found.st_uid, found.st_gid
    info.mtime = found.st_mtime
    return info


def _replaced(path: str) -> Interrupted:
    return Interrupted(f"`{path}` was replaced by something else while it was read")
