"""Single files of this machine, in directories that a sandbox may share."""

from __future__ import annotations

import asyncio
import os
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
    """Takes what is uploaded."""

    def __init__(self) -> None:
        self.content = b""
        self.permissions = 0

    async def upload(self, _: Any, messages: AsyncIterator[api.WriteFileRequest]) -> api.FileInfo:
        self.permissions = (await messages.__anext__()).permissions
        async for message in messages:
            self.content += message.data
        return api.FileInfo(size=len(self.content))


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
