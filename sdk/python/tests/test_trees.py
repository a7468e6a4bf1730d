"""Archives from a sandbox are not trusted."""

from __future__ import annotations

import io
import os
import tarfile
from pathlib import Path

import pytest

from belljar import _trees, errors

Entry = tuple[str, bytes, str]
FILE, DIRECTORY, LINK, HARD = tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE


def unpack(target: Path, *entries: Entry) -> None:
    with _trees.unpacking(target) as file, tarfile.open(fileobj=file, mode="w") as archive:
        for name, kind, text in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = kind, 0o6777
            if kind in (LINK, HARD):
                entry.linkname = text
            content = text.encode() if kind == FILE else b""
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def test_trees_come_out_as_they_are(tmp_path: Path) -> None:
    target = tmp_path / "target"
    unpack(target, (".", DIRECTORY, ""), ("a", FILE, "old"), ("./a", FILE, "new"), ("d/e/f", FILE, "deep"))
    unpack(target, ("d/up", LINK, "../a"), ("d/e/over", LINK, "../up"), ("same", HARD, "d/e/f"), ("d", DIRECTORY, ""))
    assert (target / "d/e/over").read_text() == "new"
    assert (target / "same").read_text() == "deep"
    # Nobody becomes somebody else by it, and only its owner may write.
    assert (target / "a").stat().st_mode & 0o7777 == 0o755


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
        [("pipe", tarfile.FIFOTYPE, "")],
        [("device", tarfile.CHRTYPE, "")],
        [("d", DIRECTORY, ""), ("d", FILE, "x")],
        [("a", FILE, "x"), ("a/b", FILE, "x")],
    ],
)
def test_what_lies_outside_is_refused(tmp_path: Path, entries: list[Entry]) -> None:
    (tmp_path / "secret").write_text("secret")
    target = tmp_path / "target"
    with pytest.raises(errors.ArchiveRefused):
        unpack(target, *entries)
    assert sorted(os.listdir(tmp_path)) == ["secret", "target"]
    for path in target.rglob("*"):
        assert os.path.realpath(path).startswith(str(target.resolve()))
        assert not path.is_file() or path.read_text() != "secret"


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
