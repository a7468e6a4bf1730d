# Made from tests/asynchronous/test_files.py by mirror.py; change that one.
"""Files inside a sandbox."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar import Sandbox, errors


def test_bytes_text_ranges_and_appending(sandbox: Sandbox) -> None:
    files = sandbox.files
    info = files.write("a.txt", "grüße\n", permissions=0o600)
    assert (info.kind, info.mode) == ("file", 0o600)
    assert files.read_text("a.txt") == "grüße\n"
    files.append("a.txt", b"more")
    assert files.read("/workspace/a.txt") == "grüße\nmore".encode()
    assert files.read("a.txt", offset=8, length=2) == b"mo"
    with pytest.raises(errors.FileExists):
        files.write("a.txt", "", mode="create_new")
    with pytest.raises(errors.FileNotFound):
        files.read("absent")
    with pytest.raises(errors.FileNotFound):
        files.write("new/dir/file", "x")
    files.write("new/dir/file", "x", parents=True)
    assert files.exists("new/dir/file")
    assert not files.exists("new/dir/other")
    with pytest.raises(errors.FileDenied):
        files.write("/usr/bin/true", "")


def test_streams_both_ways(sandbox: Sandbox) -> None:
    content = os.urandom(3_000_000)
    sandbox.files.write("big", io.BytesIO(content))
    pieces = [piece for piece in sandbox.files.read_stream("big")]
    assert len(pieces) > 1
    assert b"".join(pieces) == content

    def produced() -> Iterator[bytes]:
        for number in range(5):
            yield b"%d\n" % number

    sandbox.files.write("lines", produced())
    assert sandbox.files.read("lines") == b"0\n1\n2\n3\n4\n"


def test_looking_moving_and_removing(sandbox: Sandbox) -> None:
    files = sandbox.files
    files.make_directory("d/e", parents=True)
    files.write("d/one.py", "import os\n")
    files.write("d/e/two.py", "import sys  # marked\n")
    assert sorted(entry.path for entry in files.list("d")) == ["e", "one.py"]
    assert sorted(entry.path for entry in files.list("d", depth=2)) == ["e", "e/two.py", "one.py"]
    (hit,) = files.search("d", name="*.py", content="marked")
    assert (hit.path, hit.line) == ("d/e/two.py", 1)
    assert len(files.search("d", name="*.py")) == 2
    files.move("d/one.py", "d/three.py")
    copied = files.copy("d", "copy", recursive=True)
    assert (copied.files, copied.directories) == (2, 2)
    assert (files.chmod("d/three.py", 0o700)).mode == 0o700
    sandbox.run("ln -s three.py d/link", check=True)
    assert (files.stat("d/link")).link_target == "three.py"
    assert (files.stat("d/link", follow=True)).kind == "file"
    with pytest.raises(errors.BelljarError):
        files.remove("d")
    files.remove("d", recursive=True)
    assert not files.exists("d")


def test_changes_are_watched(sandbox: Sandbox) -> None:
    events = sandbox.files.watch("/workspace", recursive=True)
    sandbox.run("mkdir sub", check=True)
    for event in events:
        if event.path == "sub":
            break
    sandbox.run("echo x > sub/file", check=True)
    for event in events:
        if event.path == "sub/file":
            break
    assert event.kind in ("created", "modified")


def test_trees_go_in_and_come_out(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "inner").mkdir(parents=True)
    (source / "a.txt").write_text("a")
    (source / "inner" / "run.sh").write_text("#!/bin/sh\necho ran\n")
    (source / "inner" / "run.sh").chmod(0o755)
    (source / "link").symlink_to("a.txt")
    (source / "outside").symlink_to("/etc/passwd")
    os.mkfifo(source / "pipe")
    unpacked = sandbox.files.upload(source, "/workspace/tree")
    assert (unpacked.files, unpacked.links, unpacked.skipped) == (2, 1, 2)
    assert (sandbox.run("tree/inner/run.sh; cat tree/link")).stdout == "ran\na"
    sandbox.files.download("/workspace/tree", tmp_path / "back")
    assert (tmp_path / "back" / "a.txt").read_text() == "a"
    assert os.access(tmp_path / "back" / "inner" / "run.sh", os.X_OK)
    assert (tmp_path / "back" / "link").is_symlink()
    sandbox.files.upload(source / "a.txt", "/workspace/alone/a.txt")
    sandbox.files.download("/workspace/alone/a.txt", tmp_path / "out" / "a.txt")
    assert (tmp_path / "out" / "a.txt").read_text() == "a"


def test_what_fails_on_the_way_in_is_told(
    sandbox: Sandbox, tmp_path: Path, refused_early: tuple[type[errors.BelljarError], ...]
) -> None:
    def broken() -> Iterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sandbox.files.write("half", broken())
    (tmp_path / "name").mkdir()
    (tmp_path / "name" / "huge").touch()
    os.truncate(tmp_path / "name" / "huge", 1 << 40)
    # By the sandbox, before there is more of it than a piece.
    with pytest.raises(refused_early):
        sandbox.files.upload(tmp_path, "/workspace/tree")
    # The twin: nothing is on its way any more, so why is always told.
    with pytest.raises(errors.ArchiveRefused):
        sandbox.files.unpack("/workspace/tree", b"\0" * 100)
    os.truncate(tmp_path / "name" / "huge", 3 << 20)
    assert (sandbox.files.upload(tmp_path, "/workspace/tree")).bytes == 3 << 20


def test_what_a_tree_points_to_outside_does_not_come_out(sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox.run("mkdir t; ln -s /etc/passwd t/link; echo fine > t/a", check=True)
    with pytest.raises(errors.ArchiveRefused):
        sandbox.files.download("t", tmp_path / "t")
    assert not (tmp_path / "t" / "link").exists()
