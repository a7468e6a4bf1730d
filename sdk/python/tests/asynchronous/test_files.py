"""Files inside a sandbox."""

from __future__ import annotations

import io
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from belljar import AsyncSandbox, errors


async def test_bytes_text_ranges_and_appending(sandbox: AsyncSandbox) -> None:
    files = sandbox.files
    info = await files.write("a.txt", "grüße\n", permissions=0o600)
    assert (info.kind, info.mode) == ("file", 0o600)
    assert await files.read_text("a.txt") == "grüße\n"
    await files.append("a.txt", b"more")
    assert await files.read("/workspace/a.txt") == "grüße\nmore".encode()
    assert await files.read("a.txt", offset=8, length=2) == b"mo"
    with pytest.raises(errors.FileExists):
        await files.write("a.txt", "", mode="create_new")
    with pytest.raises(errors.FileNotFound):
        await files.read("absent")
    with pytest.raises(errors.FileNotFound):
        await files.write("new/dir/file", "x")
    await files.write("new/dir/file", "x", parents=True)
    assert await files.exists("new/dir/file")
    assert not await files.exists("new/dir/other")
    with pytest.raises(errors.FileDenied):
        await files.write("/usr/bin/true", "")


async def test_streams_both_ways(sandbox: AsyncSandbox) -> None:
    content = os.urandom(3_000_000)
    await sandbox.files.write("big", io.BytesIO(content))
    pieces = [piece async for piece in sandbox.files.read_stream("big")]
    assert len(pieces) > 1
    assert b"".join(pieces) == content

    async def produced() -> AsyncIterator[bytes]:
        for number in range(5):
            yield b"%d\n" % number

    await sandbox.files.write("lines", produced())
    assert await sandbox.files.read("lines") == b"0\n1\n2\n3\n4\n"


async def test_looking_moving_and_removing(sandbox: AsyncSandbox) -> None:
    files = sandbox.files
    await files.make_directory("d/e", parents=True)
    await files.write("d/one.py", "import os\n")
    await files.write("d/e/two.py", "import sys  # marked\n")
    assert sorted(entry.path for entry in await files.list("d")) == ["e", "one.py"]
    assert sorted(entry.path for entry in await files.list("d", depth=2)) == ["e", "e/two.py", "one.py"]
    (hit,) = await files.search("d", name="*.py", content="marked")
    assert (hit.path, hit.line) == ("d/e/two.py", 1)
    assert len(await files.search("d", name="*.py")) == 2
    await files.move("d/one.py", "d/three.py")
    copied = await files.copy("d", "copy", recursive=True)
    assert (copied.files, copied.directories) == (2, 2)
    assert (await files.chmod("d/three.py", 0o700)).mode == 0o700
    await sandbox.run("ln -s three.py d/link", check=True)
    assert (await files.stat("d/link")).link_target == "three.py"
    assert (await files.stat("d/link", follow=True)).kind == "file"
    with pytest.raises(errors.BelljarError):
        await files.remove("d")
    await files.remove("d", recursive=True)
    assert not await files.exists("d")


async def test_changes_are_watched(sandbox: AsyncSandbox) -> None:
    events = await sandbox.files.watch("/workspace", recursive=True)
    await sandbox.run("mkdir sub", check=True)
    async for event in events:
        if event.path == "sub":
            break
    await sandbox.run("echo x > sub/file", check=True)
    async for event in events:
        if event.path == "sub/file":
            break
    assert event.kind in ("created", "modified")


async def test_trees_go_in_and_come_out(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    (source / "inner" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "inner" / "run.sh").chmod(0o755)
    (source / "link").symlink_to("a.txt")
    (source / "outside").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe")
    unpacked = await sandbox.files.upload(source, "/workspace/tree")
    assert (unpacked.files, unpacked.links, unpacked.skipped) == (2, 1, 2)
    assert (await sandbox.run("tree/inner/run.sh; cat tree/link")).stdout == "ran\na"
    await sandbox.files.download("/workspace/tree", tmp_path / "back")
    assert (tmp_path / "back" / "a.txt").read_text() == "a"
    assert os.access(tmp_path / "back" / "inner" / "run.sh", os.X_OK)
    assert (tmp_path / "back" / "link").is_symlink()
    await sandbox.files.upload(source / "a.txt", "/workspace/alone/a.txt")
    await sandbox.files.download("/workspace/alone/a.txt", tmp_path / "out" / "a.txt")
    assert (tmp_path / "out" / "a.txt").read_text() == "a"


async def test_what_fails_on_the_way_in_is_told(
    sandbox: AsyncSandbox, tmp_path: Path, refused_early: tuple[type[errors.BelljarError], ...]
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await sandbox.files.write("half", broken())
    (tmp_path / "name").mkdir()
    (tmp_path / "name" / "huge").touch()
    os.truncate(tmp_path / "name" / "huge", 1 << 40)
    # By the sandbox, before there is more of it than a piece.
    with pytest.raises(refused_early):
        await sandbox.files.upload(tmp_path, "/workspace/tree")
    # The twin: nothing is on its way any more, so why is always told.
    with pytest.raises(errors.ArchiveRefused):
        await sandbox.files.unpack("/workspace/tree", b"\0" * 100)
    os.truncate(tmp_path / "name" / "huge", 3 << 20)
    assert (await sandbox.files.upload(tmp_path, "/workspace/tree")).bytes == 3 << 20


async def test_what_a_tree_points_to_outside_does_not_come_out(sandbox: AsyncSandbox, tmp_path: Path) -> None:
    await sandbox.run("mkdir t; ln -s /etc/passwd t/link; echo fine > t/a", check=True)
    with pytest.raises(errors.ArchiveRefused):
        await sandbox.files.download("t", tmp_path / "t")
    assert not (tmp_path / "t" / "link").exists()
