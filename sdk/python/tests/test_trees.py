"""Archives from a sandbox are not trusted, nor are directories that one shares."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import tarfile
import threading
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, cast

import pytest

from belljar import _pack, _trees, _unpack, errors
from belljar._async.files import AsyncFiles
from belljar._async.pieces import pieces
from belljar._generated import api
from belljar._unpack import stays_inside

Entry = tuple[str, bytes, str]
FILE, DIRECTORY, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def unpack(target: Path, *entries: Entry) -> None:
    with closing(_trees.Unpacking()) as unpacking:
        unpacking.write(archived(*entries))
        unpacking.unpack(target)


def archived(*entries: Entry) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name, kind, text in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = kind, 0o6777
            if kind in (LINK, HARD):
                entry.linkname = text
            content = text.encode() if kind == FILE else b""
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return file.getvalue()


def test_trees_come_out_as_they_are(tmp_path: Path) -> None:
    target = tmp_path / "target"
    unpack(target, (".", DIRECTORY, ""), ("a", FILE, "old"), ("./a", FILE, "new"), ("d/e/f", FILE, "deep"))
    unpack(target, ("d/up", LINK, "../a"), ("d/e/over", LINK, "../up"), ("same", HARD, "d/e/f"), ("d", DIRECTORY, ""))
    assert (target / "d/e/over").read_text() == "new"
    assert (target / "same").read_text() == "deep"
    # Nobody becomes somebody else by it, and only its owner may write.
    assert (target / "a").stat().st_mode & 0o7777 == 0o755
    before = os.umask(0o077)
    try:
        unpack(target, ("private", FILE, ""))
    finally:
        os.umask(before)
    assert (target / "private").stat().st_mode & 0o7777 == 0o700


@pytest.mark.parametrize(
    "entries",
    [
        [("../out", FILE, "x")],
        [("/out", FILE, "x")],
        [("d/../../out", FILE, "x")],
        [("l", LINK, "/etc")],
        [("l", LINK, "..")],
        [("d/l", LINK, "../../out")],
        [("d/l", LINK, "x/../../../out")],
        # A link that leads nowhere until another entry makes it.
        [("l", LINK, "later/../out"), ("later", LINK, ".")],
        [("l", LINK, "."), ("l/../out", FILE, "x")],
        [("d", LINK, "e"), ("e", DIRECTORY, ""), ("d/x", FILE, "x")],
        [("h", HARD, "../secret")],
        [("l", LINK, "secret"), ("h", HARD, "l")],
        [("h", HARD, "missing")],
        [("d", DIRECTORY, ""), ("h", HARD, "d")],
        [("pipe", tarfile.FIFOTYPE, "")],
        [("device", tarfile.CHRTYPE, "")],
        [("d", DIRECTORY, ""), ("d", FILE, "x")],
        [("a", FILE, "x"), ("a/b", FILE, "x")],
    ],
)
def test_what_lies_outside_is_refused(tmp_path: Path, entries: list[Entry]) -> None:
    (tmp_path / "secret").write_text("secret")
    target = tmp_path / "target"
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(errors.ArchiveRefused):
        unpack(target, *entries)
    assert len(os.listdir("/proc/self/fd")) == before
    assert sorted(os.listdir(tmp_path)) == ["secret", "target"]
    for path in target.rglob("*"):
        assert os.path.realpath(path).startswith(str(target.resolve()))
        assert not path.is_file() or path.read_text() != "secret"


def test_names_in_errors_are_harmless(tmp_path: Path) -> None:
    name = "a\x1b]0;x\x07\nb\u202e"
    for entry in [(name, tarfile.FIFOTYPE, ""), (f"../{name}", FILE, "x")]:
        with pytest.raises(errors.ArchiveRefused) as refused:
            unpack(tmp_path / "target", entry)
        assert refused.value.cause.isprintable()
        assert r"a\x1b]0;x\x07\nb\u202e` " in refused.value.cause
    (tmp_path / "target" / name).symlink_to("x")
    root = os.open(tmp_path / "target", os.O_RDONLY)
    try:
        with pytest.raises(errors.Interrupted) as replaced, _pack._opened(root, name, name, stat.S_IFREG):
            pass
    finally:
        os.close(root)
    assert str(replaced.value).isprintable()


def test_what_is_there_is_never_written_through(tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    target.mkdir()
    outside.mkdir()
    (outside / "file").write_text("as it was")
    (target / "link").symlink_to(outside / "file")
    (target / "tree").symlink_to(outside)
    unpack(target, ("link", FILE, "new"))
    assert (target / "link").read_text() == "new"
    with pytest.raises(errors.ArchiveRefused):
        unpack(target, ("tree/file", FILE, "new"))
    assert (outside / "file").read_text() == "as it was"


def packed(source: Path) -> dict[str, str]:
    """Names, and what is behind them."""
    found = {}
    with closing(_trees.Packed(source)) as file, tarfile.open(fileobj=cast(BinaryIO, file), mode="r|") as archive:
        for entry in archive:
            content = archive.extractfile(entry) if entry.isreg() else None
            found[entry.name] = f"-> {entry.linkname}" if content is None else content.read().decode()
    return found


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A tree with a file and a directory, beside a directory of the host's."""
    tree = tmp_path / "tree"
    (tree / "b").mkdir(parents=True)
    (tmp_path / "host").mkdir()
    (tree / "a").write_text("first")
    (tree / "b/key").write_text("ours")
    (tmp_path / "host/key").write_text("the host's")
    return tree


def test_a_directory_that_becomes_a_link_is_not_packed_through_it(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = _pack._header

    def header_and_swap(path: str, found: os.stat_result, kind: bytes, *, size: int = 0, link: str = "") -> bytes:
        if path == "b":
            (tree / "b").rename(tree / "z")
            (tree / "b").symlink_to(tree.parent / "host")
        return header(path, found, kind, size=size, link=link)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(_pack, "_header", header_and_swap)
        assert packed(tree)["b/key"] == "ours"
    # As a link from the beginning it is one, which a sandbox would refuse.
    assert packed(tree) == {"a": "first", "z": "-> ", "z/key": "ours"}


def test_a_file_is_sent_as_it_is_read(tree: Path) -> None:
    os.truncate(tree / "a", 1 << 40)
    before = len(os.listdir("/proc/self/fd"))
    with closing(_trees.Packed(tree)) as file:
        # Nobody waits for the rest, and nothing keeps it.
        assert len(file.read(1 << 20)) == 1 << 20
        assert len(file._held) <= _pack._PIECE
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ValueError, match="closed"):
        file.read(1)


def test_a_file_that_changes_its_size_is_what_it_was(tree: Path) -> None:
    for size, expected in [(5, "first"), (9, "first"), (4, None)]:
        (tree / "a").write_text("first")
        with closing(_trees.Packed(tree)) as file:
            header = file.read(tarfile.BLOCKSIZE)
            # Its content is read when it is asked for.
            os.truncate(tree / "a", size)
            if expected is None:
                with pytest.raises(errors.Interrupted, match="`a` became shorter"):
                    file.read(tarfile.BLOCKSIZE)
            else:
                assert tarfile.TarInfo.frombuf(header, "utf-8", "strict").size == 5
                assert file.read(tarfile.BLOCKSIZE) == b"first" + bytes(tarfile.BLOCKSIZE - 5)


def test_plain_files_need_one_header_each(tree: Path) -> None:
    os.utime(tree / "a", (5.5, 5.5))
    with closing(_trees.Packed(tree)) as file:
        # `a` and `b/key` with their contents, `b`, and the end.
        assert len(file.read(1 << 20)) == (2 + 1 + 2 + 2) * tarfile.BLOCKSIZE


def test_what_is_too_deep_is_said_so(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 128)
    deep.mkdir(parents=True)
    assert len(packed(tmp_path)) == 128
    (deep / "file").touch()
    with pytest.raises(errors.ArchiveRefused, match="too deep for an archive"):
        packed(tmp_path)


def test_files_are_read_beside_the_event_loop() -> None:
    class Slow(io.RawIOBase):
        """Has something once the loop has gone on."""

        def __init__(self) -> None:
            self.ready = threading.Event()
            self.left = [b"piece"]

        def read(self, size: int = -1) -> bytes:
            assert self.ready.wait(10)
            return self.left.pop() if self.left else b""

    async def read() -> list[bytes]:
        slow = Slow()
        asyncio.get_running_loop().call_soon(slow.ready.set)
        return [piece async for piece in pieces(cast(BinaryIO, slow))]

    assert asyncio.run(read()) == [b"piece"]


def test_what_became_something_else_is_not_read(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    (tree / "link").symlink_to(tree.parent / "host")
    root = os.open(tree, os.O_RDONLY)
    try:
        for name, kind in [("pipe", stat.S_IFREG), ("link", stat.S_IFDIR), ("link", stat.S_IFREG), ("a", stat.S_IFDIR)]:
            with pytest.raises(errors.Interrupted, match="was replaced"), _pack._opened(root, name, name, kind):
                pass
        for name, kind in [("a", stat.S_IFREG), ("b", stat.S_IFDIR)]:
            with _pack._opened(root, name, name, kind):
                pass
    finally:
        os.close(root)


def test_modes_times_and_second_names_go_along(tree: Path) -> None:
    (tree / "a").chmod(0o751)
    os.utime(tree / "a", (5, 5))
    os.link(tree / "a", tree / "again")
    with closing(_trees.Packed(tree)) as file, tarfile.open(fileobj=cast(BinaryIO, file), mode="r|") as archive:
        entries = {entry.name: entry for entry in archive}
    assert list(entries) == ["a", "again", "b", "b/key"]
    assert (entries["a"].mode, entries["a"].mtime) == (0o751, 5)
    assert (entries["again"].type, entries["again"].linkname) == (HARD, "a")
    assert entries["b"].type == DIRECTORY


def test_what_a_sandbox_would_refuse_is_left_out(tree: Path) -> None:
    os.mkfifo(tree / "pipe")
    links = {
        "absolute": "/etc/passwd",
        "above": "../x",
        "b/above": "../../x",
        "b/behind": "../b/../a",
        "b/inside": "../a",
        "nowhere": "./x/y",
    }
    for name, target in links.items():
        (tree / name).symlink_to(target)
    with closing(_trees.Packed(tree)) as file, tarfile.open(fileobj=cast(BinaryIO, file), mode="r|") as archive:
        assert [entry.name for entry in archive] == ["a", "b", "b/inside", "b/key", "nowhere"]
        assert file.left_out == 5


def test_who_gives_an_upload_up_waits_for_nobody(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, go_on = threading.Event(), threading.Event()
    seen: list[str] = []

    def slow(target: str, depth: int) -> bool:
        seen.append(target)
        reading.set()
        assert go_on.wait(10)
        return stays_inside(target, depth)

    monkeypatch.setattr("belljar._pack.stays_inside", slow)
    for number in range(9):
        (tree / f"link{number}").symlink_to("/")
    before = len(os.listdir("/proc/self/fd"))
    failures: list[str] = []

    def read() -> None:
        try:
            file.read(1 << 20)
        except ValueError as error:
            failures.append(str(error))

    file = _trees.Packed(tree)
    thread = threading.Thread(target=read)
    thread.start()
    assert reading.wait(10)
    file.close()
    # Whoever reads sees it at the next entry, and closes what is open.
    assert len(os.listdir("/proc/self/fd")) > before
    go_on.set()
    thread.join(10)
    assert (failures, seen) == (["the archive is closed"], ["/"])
    assert len(os.listdir("/proc/self/fd")) == before
    with pytest.raises(ValueError, match="closed"):
        file.read(1)


class Tree:
    """A server that sends this tree, in pieces."""

    def __init__(self, *entries: Entry) -> None:
        self._archive = archived(*entries)

    async def call(self, *_: object, **__: object) -> api.FileInfo:
        (directory,) = (number for number, word in api.FILE_KIND_WORDS.items() if word == "directory")
        return api.FileInfo(kind=directory)

    async def download(self, *_: object) -> AsyncIterator[api.FileChunk]:
        for start in range(0, len(self._archive), 1000):
            yield api.FileChunk(data=self._archive[start : start + 1000])


def test_a_tree_is_unpacked_beside_the_event_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ready = threading.Event()

    def slow(archive: tarfile.TarFile, target: str | os.PathLike[str]) -> None:
        assert ready.wait(10)
        _unpack.unpack(archive, target)

    monkeypatch.setattr("belljar._trees.unpack", slow)

    async def download() -> None:
        asyncio.get_running_loop().call_later(0.1, ready.set)
        tree: Any = Tree(("d/e", FILE, "x" * 5000))
        await AsyncFiles(tree, "s").download("/there", tmp_path)

    asyncio.run(download())
    assert (tmp_path / "d/e").read_text() == "x" * 5000


def test_who_gives_a_download_up_waits_for_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(archive: tarfile.TarFile, target: str | os.PathLike[str]) -> None:
        begun.set()
        assert go_on.wait(10)
        _unpack.unpack(archive, target)

    monkeypatch.setattr("belljar._trees.unpack", slow)

    async def download() -> None:
        tree: Any = Tree(("a", FILE, "x" * 5000), ("b", FILE, "x"))
        downloading = asyncio.ensure_future(AsyncFiles(tree, "s").download("/there", tmp_path))
        await asyncio.to_thread(begun.wait, 10)
        downloading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await downloading
        go_on.set()
        for thread in threading.enumerate():
            if thread.name == "belljar-aside":
                thread.join(10)

    asyncio.run(download())
    assert not (tmp_path / "b").exists()
