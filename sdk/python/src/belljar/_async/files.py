"""Files of a sandbox. Everything is done inside, with the sandbox's own user."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterable, AsyncIterator
from contextlib import closing
from typing import BinaryIO, Union, cast

from belljar import _file, _requests, _trees
from belljar._async.aside import aside
from belljar._async.connection import AsyncConnection
from belljar._async.pieces import pieces
from belljar._entries import Copied, FileEvent, FileInfo, SearchHit, Unpacked
from belljar._generated import api, methods
from belljar._generated.codes import FileNotFound

# What can be written: text, bytes, an open file, or pieces as they come.
Source = Union[str, bytes, BinaryIO, AsyncIterable[bytes]]


# `list` is a method below.
Hits = list[SearchHit]


class AsyncFiles:
    """Relative paths start at the sandbox's working directory."""

    def __init__(self, connection: AsyncConnection, sandbox: str) -> None:
        self._connection = connection
        self._sandbox = sandbox

    # --- content ---

    async def read(self, path: str, *, offset: int = 0, length: int | None = None) -> bytes:
        """The bytes of a file, or of a part of it."""
        content = bytearray()
        async for piece in self.read_stream(path, offset=offset, length=length):
            content.extend(piece)
        return bytes(content)

    async def read_text(self, path: str, *, encoding: str = "utf-8", errors: str = "strict") -> str:
        """A file as text."""
        return (await self.read(path)).decode(encoding, errors)

    async def read_stream(self, path: str, *, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """A file in pieces, as they come."""
        request = api.ReadFileRequest(sandbox=self._sandbox, path=path, offset=offset, length=length)
        async for chunk in self._connection.download(methods.READ_FILE, request):
            yield chunk.data

    async def write(
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

        async def messages() -> AsyncIterator[api.WriteFileRequest]:
            yield first
            async for piece in pieces(content):
                yield api.WriteFileRequest(data=piece)

        return FileInfo.of(await self._connection.upload(methods.WRITE_FILE, messages()))

    async def append(self, path: str, content: Source) -> FileInfo:
        """Writes at the end of a file."""
        return await self.write(path, content, mode="append")

    # --- paths ---

    async def stat(self, path: str, *, follow: bool = False) -> FileInfo:
        """What is at a path; with `follow`, at the end of a symbolic link."""
        request = api.StatFileRequest(sandbox=self._sandbox, path=path, follow=follow)
        return FileInfo.of(await self._connection.call(methods.STAT_FILE, request, again=True))

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except FileNotFound:
            return False
        return True

    async def list(self, path: str = ".", *, depth: int = 1) -> list[FileInfo]:
        """What is in a directory, and in those below it down to `depth`."""
        request = api.ListFilesRequest(sandbox=self._sandbox, path=path, depth=depth)
        found: list[FileInfo] = []
        while True:
            page = await self._connection.call(methods.LIST_FILES, request, again=True)
            found.extend(FileInfo.of(message) for message in page.files)
            if not page.HasField("next_page_token"):
                return found
            request.page_token = page.next_page_token

    async def make_directory(self, path: str, *, parents: bool = False) -> FileInfo:
        request = api.MakeDirectoryRequest(sandbox=self._sandbox, path=path, parents=parents)
        return FileInfo.of(await self._connection.call(methods.MAKE_DIRECTORY, request))

    async def move(self, source: str, target: str, *, replace: bool = False) -> FileInfo:
        request = api.MoveFileRequest(sandbox=self._sandbox, to=target, replace=replace, **{"from": source})
        return FileInfo.of(await self._connection.call(methods.MOVE_FILE, request))

    async def copy(self, source: str, target: str, *, recursive: bool = False, replace: bool = False) -> Copied:
        """Copies inside the sandbox."""
        request = api.CopyFileRequest(
            sandbox=self._sandbox, to=target, recursive=recursive, replace=replace, **{"from": source}
        )
        answer = await self._connection.call(methods.COPY_FILE, request)
        return Copied(answer.files, answer.directories, answer.bytes, tuple(answer.skipped))

    async def remove(self, path: str, *, recursive: bool = False) -> None:
        request = api.RemoveFileRequest(sandbox=self._sandbox, path=path, recursive=recursive)
        await self._connection.call(methods.REMOVE_FILE, request)

    async def chmod(self, path: str, permissions: int) -> FileInfo:
        request = api.ChangeModeRequest(sandbox=self._sandbox, path=path, permissions=permissions)
        return FileInfo.of(await self._connection.call(methods.CHANGE_MODE, request, again=True))

    # --- looking ---

    async def search(
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
        return [SearchHit.of(hit) async for hit in self._connection.download(methods.SEARCH_FILES, request)]

    async def watch(self, path: str, *, recursive: bool = False) -> AsyncIterator[FileEvent]:
        """Changes below a path. Nothing that happens after this returns is missed."""
        request = api.WatchFilesRequest(sandbox=self._sandbox, path=path, recursive=recursive)
        messages = self._connection.download(methods.WATCH_FILES, request)
        # The first one says that the watch is in place.
        await messages.__anext__()
        return self._events(messages)

    async def _events(self, messages: AsyncIterator[api.FileEvent]) -> AsyncIterator[FileEvent]:
        async for message in messages:
            yield FileEvent.of(message)

    # --- trees ---

    async def upload(self, source: str | os.PathLike[str], target: str) -> Unpacked:
        """Copies a file or a whole tree of this machine into the sandbox; links stay links."""
        with closing(_file.Outgoing(source)) as file:
            if await aside(file.open):
                info = await self.write(target, cast(BinaryIO, file), permissions=file.mode, parents=True)
                return Unpacked(files=1, directories=0, links=0, bytes=info.size)
        await self.make_directory(target, parents=True)
        with closing(_trees.Packed(source)) as packed:
            unpacked = await self.unpack(target, cast(BinaryIO, packed))
            return dataclasses.replace(unpacked, skipped=packed.left_out)

    async def download(self, source: str, target: str | os.PathLike[str]) -> None:
        """Copies a file, with its permissions under the umask, or a whole tree out of the sandbox.

        What would lie outside of `target` is refused.
        """
        found = await self.stat(source, follow=True)
        if found.kind == "file":
            with closing(_file.Incoming(target, found.mode)) as file:
                await aside(file.open)
                async for piece in self.read_stream(source):
                    await aside(file.write, piece)
                await aside(file.finish)
            return
        with closing(_trees.Unpacking()) as archive:
            async for piece in self.pack(source):
                await aside(archive.write, piece)
            await aside(archive.unpack, target)

    async def pack(self, path: str, *, format: str = "tar") -> AsyncIterator[bytes]:
        """A tree as one archive, in pieces: `tar`, `tar_gz` or `zip`."""
        (number,) = _requests.numbers([format], api.ARCHIVE_FORMAT_WORDS, "format")
        request = api.ReadArchiveRequest(sandbox=self._sandbox, path=path, format=number)
        async for chunk in self._connection.download(methods.READ_ARCHIVE, request):
            yield chunk.data

    async def unpack(self, path: str, archive: Source, *, format: str = "tar") -> Unpacked:
        """Unpacks an archive inside the sandbox: `tar`, `tar_gz` or `zip`."""
        (number,) = _requests.numbers([format], api.ARCHIVE_FORMAT_WORDS, "format")

        async def messages() -> AsyncIterator[api.WriteArchiveRequest]:
            yield api.WriteArchiveRequest(sandbox=self._sandbox, path=path, format=number)
            async for piece in pieces(archive):
                yield api.WriteArchiveRequest(data=piece)

        return Unpacked.of(await self._connection.upload(methods.WRITE_ARCHIVE, messages()))
