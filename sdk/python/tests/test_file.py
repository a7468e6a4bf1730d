"""Single files of this machine, in directories that a sandbox may share."""

from __future__ import annotations

import asyncio
import fcntl
import os
import stat
import struct
import termios
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from belljar import _file, errors
from belljar._async.files import AsyncFiles
from belljar._generated import api


@pytest.fixture
def descriptors() -> Callable[[], int]:
    return lambda: len(os.listdir("/proc/self/fd"))


class Server:
    """Takes what is uploaded, and has that for downloads."""

    def __init__(self, content: bytes = b"") -> None:
        self.content = content
        self.permissions = 0

    async def call(self, *_: object, **__: object) -> api.FileInfo:
        (file,) = (number for number, word in api.FILE_KIND_WORDS.items() if word == "file")
        return api.FileInfo(kind=file, mode=self.permissions)

    async def download(self, *_: object) -> AsyncIterator[api.FileChunk]:
        for start in range(0, len(self.content), 50_000):
            yield api.FileChunk(data=self.content[start : start + 50_000])

    async def upload(self, _: Any, messages: AsyncIterator[api.WriteFileRequest]) -> api.FileInfo:
        self.permissions = (await messages.__anext__()).permissions
        async for message in messages:
            self.content += message.data
        return api.FileInfo(size=len(self.content))


async def download(server: Any, target: Path) -> None:
    await asyncio.wait_for(AsyncFiles(server, "s").download("/there", target), 10)


async def upload(server: Any, source: Path) -> int:
    return (await asyncio.wait_for(AsyncFiles(server, "s").upload(source, "/there"), 10)).bytes


def test_a_file_is_sent_with_the_permissions_that_it_has(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 100_000)
    (tmp_path / "file").chmod(0o751)
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        server = Server()
        assert asyncio.run(upload(server, tmp_path / name)) == 100_000
        assert (server.content, server.permissions) == (b"x" * 100_000, 0o751)


def test_what_takes_the_place_of_a_file_gives_it_no_permissions(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("ours")
    (tmp_path / "file").chmod(0o600)
    with closing(_file.Outgoing(tmp_path / "file")) as file:
        assert file.open()
        (tmp_path / "file").unlink()
        (tmp_path / "file").write_text("other")
        (tmp_path / "file").chmod(0o777)
        assert (file.mode, file.read(9)) == (0o600, b"ours")


def test_no_pipe_is_waited_for(tmp_path: Path, descriptors: Callable[[], int]) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = descriptors()
    with pytest.raises(errors.InvalidArgument, match="pipe` is a pipe"):
        asyncio.run(upload(Server(), tmp_path / "pipe"))
    assert descriptors() == before
    # The twin: what a shell puts into a program's arguments.
    reader, writer = os.pipe()
    os.write(writer, b"piped")
    os.close(writer)
    server = Server()
    assert asyncio.run(upload(server, Path(f"/dev/fd/{reader}"))) == 5
    assert server.content == b"piped"
    os.close(reader)


def test_a_pipe_that_says_nothing_can_be_given_up(descriptors: Callable[[], int]) -> None:
    reader, writer = os.pipe()
    before = descriptors()
    with closing(_file.Outgoing(f"/dev/fd/{reader}")) as file:
        assert file.open()
        thread = threading.Thread(target=file.read, args=[9])
        thread.start()
        while not file._lent._lock.locked():
            assert thread.is_alive()
    assert thread.is_alive()
    os.close(writer)
    thread.join(10)
    os.close(reader)
    assert descriptors() == before - 2


def test_a_directory_is_no_file(tmp_path: Path, descriptors: Callable[[], int]) -> None:
    before = descriptors()
    with closing(_file.Outgoing(tmp_path)) as file:
        assert not file.open()
    assert descriptors() == before
    with closing(_file.Outgoing(tmp_path / "missing")) as file, pytest.raises(FileNotFoundError):
        file.open()


def test_a_file_is_saved_whole_or_not_at_all(tmp_path: Path, descriptors: Callable[[], int]) -> None:
    class Broken(Server):
        async def download(self, *_: object) -> AsyncIterator[api.FileChunk]:
            yield api.FileChunk(data=b"half")
            raise errors.Interrupted("gone")

    before = descriptors()
    asyncio.run(download(Server(b"x" * 120_000), tmp_path / "new/file"))
    with pytest.raises(errors.Interrupted, match="gone"):
        asyncio.run(download(Broken(), tmp_path / "new/file"))
    with pytest.raises(IsADirectoryError):
        asyncio.run(download(Server(), tmp_path / "new"))
    assert os.listdir(tmp_path / "new") == ["file"]
    assert os.listdir(tmp_path) == ["new"]
    assert (tmp_path / "new/file").read_bytes() == b"x" * 120_000
    assert descriptors() == before


def test_a_file_is_saved_with_the_permissions_that_it_has(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        for given, kept in ((0o755, 0o750), (0o4777, 0o750), (0o600, 0o600), (0o444, 0o640)):
            server = Server(b"x")
            server.permissions = given
            asyncio.run(download(server, tmp_path / "file"))
            assert (tmp_path / "file").stat().st_mode & 0o7777 == kept
    finally:
        os.umask(before)


def test_what_failed_is_told_also_where_the_unfinished_file_is_gone(tmp_path: Path) -> None:
    class Emptied(Server):
        async def download(self, *_: object) -> AsyncIterator[api.FileChunk]:
            yield api.FileChunk(data=b"half")
            (unfinished,) = tmp_path.iterdir()
            unfinished.unlink()
            raise errors.Interrupted("gone")

    with pytest.raises(errors.Interrupted, match="gone"):
        asyncio.run(download(Emptied(), tmp_path / "file"))


def test_a_link_in_the_place_of_a_file_gives_way(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("precious")
    os.mkfifo(tmp_path / "pipe")
    for behind in ("precious", "pipe"):
        (tmp_path / "link").symlink_to(behind)
        asyncio.run(download(Server(b"new"), tmp_path / "link"))
        assert not (tmp_path / "link").is_symlink()
        assert (tmp_path / "link").read_text() == "new"
        (tmp_path / "link").unlink()
    assert (tmp_path / "precious").read_text() == "precious"


def test_a_pipe_that_is_named_takes_what_comes_where_somebody_reads(
    tmp_path: Path, descriptors: Callable[[], int]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = descriptors()
    with pytest.raises(errors.InvalidArgument, match="nobody reads from the pipe"):
        asyncio.run(download(Server(), tmp_path / "pipe"))
    # More than a pipe holds.
    content = os.urandom(1 << 20)
    received = bytearray()

    async def both() -> None:
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        downloading = asyncio.ensure_future(download(Server(content), tmp_path / "pipe"))
        # The loop goes on while it is full.
        while len(received) < len(content):
            await asyncio.sleep(0.001)
            try:
                received.extend(os.read(reader, 1 << 20))
            except BlockingIOError:
                continue
        await downloading
        os.close(reader)

    asyncio.run(both())
    assert received == content
    assert os.listdir(tmp_path) == ["pipe"]
    assert descriptors() == before


def test_what_a_shell_puts_into_arguments_is_written_to() -> None:
    reader, writer = os.pipe()
    asyncio.run(download(Server(b"new"), Path(f"/dev/fd/{writer}")))
    os.close(writer)
    assert os.read(reader, 9) == b"new"
    os.close(reader)


def test_devices_stay_devices(tmp_path: Path) -> None:
    # Of its own: those of the machine are needed.
    null, full = tmp_path / "null", tmp_path / "full"
    try:
        for path, number in [(null, 3), (full, 7)]:
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, number))
            os.close(os.open(path, os.O_WRONLY))
    except PermissionError:
        pytest.skip("devices cannot be made here")
    asyncio.run(download(Server(b"x"), null))
    with pytest.raises(OSError, match="No space left"):
        asyncio.run(download(Server(b"x"), full))
    for path in (null, full):
        assert stat.S_ISCHR(path.lstat().st_mode)


def waiting(pipe: int) -> int:
    """The bytes that nobody has read yet."""
    (size,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(size)


def test_who_gives_a_pipe_up_waits_for_nobody(tmp_path: Path, descriptors: Callable[[], int]) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = descriptors()

    async def give_up() -> None:
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        server: Any = Server(bytes(1 << 20))
        downloading = asyncio.ensure_future(AsyncFiles(server, "s").download("/there", tmp_path / "pipe"))
        # The second piece has begun to go in, and does not fit.
        while waiting(reader) <= 50_000:
            assert not downloading.done()
            await asyncio.sleep(0)
        downloading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(downloading, 10)
        # Who is at work with it hears that nobody reads any more.
        os.close(reader)
        for thread in threading.enumerate():
            if thread.name == "belljar-aside":
                thread.join(10)

    asyncio.run(give_up())
    assert descriptors() == before
