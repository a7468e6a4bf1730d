"""Trees of this machine, packed and unpacked. An archive from a sandbox is not trusted."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from belljar._pack import Packed as Packed
from belljar._unpack import unpack

# What is larger is kept in a file meanwhile.
IN_MEMORY = 16 * 1024 * 1024


@contextmanager
def unpacking(target: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file that takes an archive, and is unpacked below `target` at the end."""
    with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as spool:
        file = cast(BinaryIO, spool)
        yield file
        file.seek(0)
        os.makedirs(target, exist_ok=True)
        with tarfile.open(fileobj=file, mode="r") as archive:
            unpack(archive, target)


@contextmanager
def replacing(target: str | os.PathLike[str]) -> Iterator[BinaryIO]:
    """A file that becomes `target` once it is complete. A directory takes nothing."""
    directory = os.path.dirname(os.path.abspath(target))
    os.makedirs(directory, exist_ok=True)
    descriptor, name = tempfile.mkstemp(dir=directory, prefix=".belljar-")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.chmod(name, 0o644)
        os.replace(name, target)
    except BaseException:
        os.unlink(name)
        raise
