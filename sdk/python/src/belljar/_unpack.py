"""Unpacks an archive that is not trusted: nothing is made or changed outside of a directory.

Not by `tarfile`'s own filters, which older releases of Python do not have. Directories are entered by descriptor and
never through a link, so where an entry lies does not depend on what other entries made. A link may lead up only from
where it is, and then down by names: each link on its way does the same, so none leads outside.
"""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from belljar._generated.codes import ArchiveRefused

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def unpack(archive: tarfile.TarFile, target: str | os.PathLike[str]) -> None:
    """Unpacks below `target`, which exists. The owner inside is nobody here, so owners are left out."""
    root = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for entry in archive:
            _entry(archive, entry, root)
    finally:
        os.close(root)


def _entry(archive: tarfile.TarFile, entry: tarfile.TarInfo, root: int) -> None:
    *above, name = _names(entry.name) or [""]
    if entry.isdir():
        with _directory(root, [*above, name] if name else [], entry):
            return
    if not name:
        raise _refused(entry, "has no name")
    with _directory(root, above, entry) as directory:
        if entry.issym():
            if not stays_inside(entry.linkname, len(above)):
                raise _refused(entry, "links to what lies outside")
            _clear(name, directory, entry)
            os.symlink(entry.linkname, name, dir_fd=directory)
        elif entry.islnk():
            with _linked(root, entry) as source:
                _write(source, name, directory, entry)
        elif entry.isreg():
            content = archive.extractfile(entry)
            if content is None:
                raise _refused(entry, "has no content")
            with content:
                _write(content, name, directory, entry)
        else:
            raise _refused(entry, "is neither a file nor a directory nor a link")


def _names(path: str) -> list[str]:
    names = [name for name in path.split("/") if name not in ("", ".")]
    if path.startswith("/") or ".." in names:
        raise ArchiveRefused(
            "the archive has an entry that lies outside of `target`", cause=f"`{shown(path)}` leads out of the tree"
        )
    return names


@contextmanager
def _directory(root: int, names: list[str], entry: tarfile.TarInfo) -> Iterator[int]:
    """A directory below the root, made where it is missing."""
    current = os.dup(root)
    try:
        for name in names:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=current)
            try:
                inner = os.open(name, _DIRECTORY, dir_fd=current)
            except OSError as error:
                raise _refused(entry, "lies below something that is no directory") from error
            os.close(current)
            current = inner
        yield current
    finally:
        os.close(current)


def stays_inside(target: str, depth: int) -> bool:
    """Whether a link whose directory is so deep in a tree leads up to its root at most, and then only down."""
    names = [step for step in target.split("/") if step not in ("", ".")]
    ups = next((at for at, name in enumerate(names) if name != ".."), len(names))
    return not target.startswith("/") and ups <= depth and ".." not in names[ups:]


@contextmanager
def _linked(root: int, entry: tarfile.TarInfo) -> Iterator[IO[bytes]]:
    """The file that a hard link means; it becomes a copy."""
    *above, name = _names(entry.linkname) or [""]
    with _directory(root, above, entry) as directory:
        try:
            descriptor = os.open(name, _OLD, dir_fd=directory)
        except OSError as error:
            raise _refused(entry, "links to a file that is not there") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refused(entry, "links to what is no file")
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            yield file
    finally:
        os.close(descriptor)


def _write(content: IO[bytes], name: str, directory: int, entry: tarfile.TarInfo) -> None:
    _clear(name, directory, entry)
    # For others to read and run at most, as far as the umask goes, and to run only what its owner may run.
    mode = entry.mode & (0o755 if entry.mode & 0o100 else 0o644) | 0o600
    with os.fdopen(os.open(name, _NEW, mode, dir_fd=directory), "wb") as file:
        shutil.copyfileobj(content, file)
        file.flush()
        os.utime(file.fileno(), (entry.mtime, entry.mtime))


def _clear(name: str, directory: int, entry: tarfile.TarInfo) -> None:
    """What was there gives way, unless it is a directory."""
    try:
        os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise _refused(entry, "is a directory already") from error


def _refused(entry: tarfile.TarInfo, why: str) -> ArchiveRefused:
    return ArchiveRefused("the archive has an entry that cannot be unpacked", cause=f"`{shown(entry.name)}` {why}")


def shown(name: str) -> str:
    """A name for people to see. A sandbox may have chosen it, and what would do something to a terminal is escaped."""
    return name if name.isprintable() else repr(name)[1:-1]
