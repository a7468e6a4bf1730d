# Made from src/belljar/_async/files.py by mirror.py; change that one.
"""Files of a sandbox. Everything is done inside, with the sandbox's own user."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import BinaryIO, Union, cast

from belljar import _file, _requests, _trees
from belljar._entries import Copied, FileEvent, FileInfo, SearchHit, Unpacked
from belljar._generated import api, methods
from belljar._generated.codes import FileNotFound
from belljar._sync.aside import aside
from belljar._sync.connection import Connection
from belljar._sync.pieces import pieces

# What can be written: text, bytes, an open file, or pieces as they come.
Source = Union[str, bytes, BinaryIO, Iterable[bytes]]


# `list` is a method below.
Hits = list[SearchHit]


class Files:
    """Relative paths start at the sandbox's working directory."""

    def __init__(self, connection: Connection, sandbox: str) -> None:
        self._connection = connection
        self._sandbox = sandbox

    # --- content ---

    def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or of a part of it."""
        content = bytearray()
        for piece in self.read_stream(path, offset=offset, length=length):
            content.extend(piece)
        return bytes(content)

    def read_text(self, path: str, *, encoding: str = "utf-8", errors: str = "strict") -> str:
        """A file as text."""
        return (self.read(path)).decode(encoding, errors)

    def read_stream(self, path: str, *, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        """A file in pieces, as they come."""
        request = api.ReadFileRequest(sandbox=self._sandbox, path=path, offset=offset, length=length)
        for chunk in self._connection.download(methods.READ_FILE, request):
            yield chunk.data

    def write(
        self,
        path: str,
        content: Source,
        *,
        mode: str = "truncate",
        permissions: int | None = None,
        parents: bool = False,
    ) -> FileInfo:
        """Writes a file. mode: `truncate`, `append` or `create_new`. parents: make directories that are missing."""
        (number,) = _requests.numbers([mode], api.WRITE_MODE_WORDS, "mode")
        first = api.WriteFileRequest(
            sandbox=self._sandbox, path=path, mode=number, permissions=permissions, make_parents=parents
        )

        def messages() -> Iterator[api.WriteFileRequest]:
            yield first
            for piece in pieces(content):
                yield api.WriteFileRequest(data=piece)

        return FileInfo.of(self._connection.upload(methods.WRITE_FILE, messages()))

    def append(self, path: str, content: Source) -> FileInfo:
        """Writes at the end of a file."""
        return self.write(path, content, mode="append")

    # --- paths ---

    def stat(self, path: str, *, follow: bool = False) -> FileInfo:
        """What is at a path; with `follow`, at the end of a symbolic link."""
        request = api.StatFileRequest(sandbox=self._sandbox, path=path, follow=follow)
        return FileInfo.of(self._connection.call(methods.STAT_FILE, request, again=True))

    def exists(self, path: str) -> bool:
        try:
            self.stat(path)
        except FileNotFound:
            return False
        return True

    def list(self, path: str = ".", *, depth: int = 1) -> list[FileInfo]:
        """What is in a directory, and in those below it down to `depth`."""
        request = api.ListFilesRequest(sandbox=self._sandbox, path=path, depth=depth)
        found: list[FileInfo] = []
        while True:
            page = self._connection.call(methods.LIST_FILES, request, again=True)
            found.extend(FileInfo.of(message) for message in page.files)
            if not page.HasField("next_page_token"):
                return found
            request.page_token = page.next_page_token

    def make_directory(self, path: str, *, parents: bool = False) -> FileInfo:
        request = api.MakeDirectoryRequest(sandbox=self._sandbox, path=path, parents=parents)
        return FileInfo.of(self._connection.call(methods.MAKE_DIRECTORY, request))

    def move(self, source: str, target: str, *, replace: bool = False) -> FileInfo:
        request = api.MoveFileRequest(sandbox=self._sandbox, to=target, replace=replace, **{"from": source})
        return FileInfo.of(self._connection.call(methods.MOVE_FILE, request))

    def copy(self, source: str, target: str, *, recursive: bool = False, replace: bool = False) -> Copied:
        """Copies inside the sandbox."""
        request = api.CopyFileRequest(
            sandbox=self._sandbox, to=target, recursive=recursive, replace=replace, **{"from": source}
        )
        answer = self._connection.call(methods.COPY_FILE, request)
        return Copied(answer.files, answer.directories, answer.bytes, tuple(answer.skipped))

    def remove(self, path: str, *, recursive: bool = False) -> None:
        request = api.RemoveFileRequest(sandbox=self._sandbox, path=path, recursive=recursive)
        self._connection.call(methods.REMOVE_FILE, request)

    def chmod(self, path: str, permissions: int) -> FileInfo:
        request = api.ChangeModeRequest(sandbox=self._sandbox, path=path, permissions=permissions)
        return FileInfo.of(self._connection.call(methods.CHANGE_MODE, request, again=True))

    # --- looking ---

    def search(
        self,
        path: str = ".",
        *,
        name: str | None = None,
        content: str | None = None,
        regex: bool = False,
        ignore_case: bool = False,
        max_depth: int | None = None,
        max_results: int | None = None,
    ) -> Hits:
        """Files by a glob for their names (`*.py`, `src/**/test_*`), by their content, or both."""
        request = api.SearchFilesRequest(
            sandbox=self._sandbox,
            path=path,
            name=name,
            content=content,
            regex=regex,
            ignore_case=ignore_case,
            max_depth=max_depth,
            max_results=max_results,
        )
        return [SearchHit.of(hit) for hit in self._connection.download(methods.SEARCH_FILES, request)]

    def watch(self, path: str, *, recursive: bool = False) -> Iterator[FileEvent]:
        """Changes below a path. Nothing that happens after this returns is missed."""
        request = api.WatchFilesRequest(sandbox=self._sandbox, path=path, recursive=recursive)
        messages = self._connection.download(methods.WATCH_FILES, request)
        # The first one says that the watch is in place.
        messages.__next__()
        return self._events(messages)

    def _events(self, messages: Iterator[api.FileEvent]) -> Iterator[FileEvent]:
        for message in messages:
            yield FileEvent.of(message)

    # --- trees ---

    def upload(self, source: str | os.PathLike[str], target: str) -> Unpacked:
        """Copies a file or a whole tree of this machine into the sandbox; links stay links."""
        with closing(_file.Outgoing(source)) as file:
            if aside(file.open):
                info = self.write(target, cast(BinaryIO, file), permissions=file.mode, parents=True)
                return Unpacked(files=1, directories=0, links=0, bytes=info.size)
        self.make_directory(target, parents=True)
        with closing(_trees.Packed(source)) as packed:
            unpacked = self.unpack(target, cast(BinaryIO, packed))
            return dataclasses.replace(unpacked, skipped=packed.left_out)

    def download(self, source: str, target: str | os.PathLike[str]) -> None:
        """Copies a file, with its permissions under the umask, or a whole tree out of the sandbox.

        What would lie outside of `target` is refused.
        """
        found = self.stat(source, follow=True)
        if found.kind == "file":
            with closing(_file.Incoming(target, found.mode)) as file:
                aside(file.open)
                for piece in self.read_stream(source):
                    aside(file.write, piece)
                aside(file.finish)
            return
        with closing(_trees.Unpacking()) as archive:
            for piece in self.pack(source):
                aside(archive.write, piece)
            aside(archive.unpack, target)

    def pack(self, path: str, *, format: str = "tar") -> Iterator[bytes]:
        """A tree as one archive, in pieces: `tar`, `tar_gz` or `zip`."""
        (number,) = _requests.numbers([format], api.ARCHIVE_FORMAT_WORDS, "format")
        request = api.ReadArchiveRequest(sandbox=self._sandbox, path=path, format=number)
        for chunk in self._connection.download(methods.READ_ARCHIVE, request):
            yield chunk.data

    def unpack(self, path: str, archive: Source, *, format: str = "tar") -> Unpacked:
        """Unpacks an archive inside the sandbox: `tar`, `tar_gz` or `zip`."""
        (number,) = _requests.numbers([format], api.ARCHIVE_FORMAT_WORDS, "format")

        def messages() -> Iterator[api.WriteArchiveRequest]:
            yield api.WriteArchiveRequest(sandbox=self._sandbox, path=path, format=number)
            for piece in pieces(archive):
                yield api.WriteArchiveRequest(data=piece)

        return Unpacked.of(self._connection.upload(methods.WRITE_ARCHIVE, messages()))
