"""What is told about files. All of it is the sandbox's word."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from belljar._generated import api
from belljar._models import moment, present


@dataclass(frozen=True)
class FileInfo:
    """A path. kind: `file`, `directory`, `symlink`, `fifo`, `socket`, `character_device` or `block_device`.

    In listings the path is relative to what was listed. `raw_path` is set where the path is not UTF-8.
    """

    path: str
    kind: str
    size: int
    mode: int
    uid: int
    gid: int
    modified_at: datetime | None
    link_target: str | None
    raw_path: bytes | None

    @classmethod
    def of(cls, message: api.FileInfo) -> FileInfo:
        return cls(
            path=message.path,
            kind=api.FILE_KIND_WORDS[message.kind],
            size=message.size,
            mode=message.mode,
            uid=message.uid,
            gid=message.gid,
            modified_at=moment(message, "modified_at"),
            link_target=present(message, "link_target"),
            raw_path=present(message, "raw_path"),
        )


@dataclass(frozen=True)
class FileEvent:
    """A change below a watched path. kind: `created`, `modified`, `removed`, `moved` or `overflow` (look again)."""

    kind: str
    path: str

    @classmethod
    def of(cls, message: api.FileEvent) -> FileEvent:
        return cls(api.FILE_EVENT_KIND_WORDS[message.kind], message.path)


@dataclass(frozen=True)
class SearchHit:
    """A file that was found; line, column and text for hits by content."""

    path: str
    kind: str
    size: int
    line: int | None
    column: int | None
    text: str | None

    @classmethod
    def of(cls, message: api.SearchHit) -> SearchHit:
        return cls(
            path=message.path,
            kind=api.FILE_KIND_WORDS[message.kind],
            size=message.size,
            line=present(message, "line"),
            column=present(message, "column"),
            text=present(message, "text"),
        )


@dataclass(frozen=True)
class Copied:
    """What was copied; `skipped` are devices, pipes and sockets."""

    files: int
    directories: int
    bytes: int
    skipped: Sequence[str] = ()


@dataclass(frozen=True)
class Unpacked:
    """What an archive had in it.

    `skipped` is what an upload left out: devices, pipes, sockets, and links that lead out of the tree.
    """

    files: int
    directories: int
    links: int
    bytes: int
    skipped: int = 0

    @classmethod
    def of(cls, message: api.WriteArchiveResponse) -> Unpacked:
        return cls(message.files, message.directories, message.links, message.bytes)
