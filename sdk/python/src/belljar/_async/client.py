"""The client: a server, and what it has."""

from __future__ import annotations

import os
from types import TracebackType

from belljar._async.connection import AsyncConnection
from belljar._async.policies import AsyncPolicies
from belljar._async.processes import AsyncProcesses
from belljar._async.sandboxes import AsyncSandboxes
from belljar._generated import api, methods
from belljar._generated.codes import InvalidArgument
from belljar._models import Server, Template

# Seconds that a server which went away is waited for.
PATIENCE = 30.0


class AsyncBelljar:
    """A client of one server.

    Without a URL it is the server of this machine, which is started where none runs; `BELLJAR_SERVER` and
    `BELLJAR_API_KEY` name another one. `state_dir` and `binary` say which local server, and what starts it. Where the
    connection is lost, what may safely be asked again is asked again for `patience` seconds, and streams go on where
    they were.

        async with AsyncBelljar() as client:
            async with await client.sandboxes.create() as sandbox:
                print((await sandbox.run("echo hello")).stdout)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        binary: str | os.PathLike[str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        if url and state_dir:
            raise InvalidArgument("`url` and `state_dir` name two servers", remedy="give one of them")
        if not url and not state_dir:
            url = os.environ.get("BELLJAR_SERVER") or None
            api_key = api_key or os.environ.get("BELLJAR_API_KEY") or None
        self._connection = AsyncConnection(url, api_key, state_dir, binary, patience)
        self.sandboxes = AsyncSandboxes(self._connection)
        self.processes = AsyncProcesses(self._connection)
        self.policies = AsyncPolicies(self._connection)

    async def __aenter__(self) -> AsyncBelljar:
        await self._connection.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Lets go of the connection. Sandboxes stay."""
        await self._connection.close()

    async def server(self) -> Server:
        """What the server is."""
        return Server.of(await self._connection.call(methods.GET_SERVER, api.GetServerRequest(), again=True))

    async def templates(self) -> list[Template]:
        """What sandboxes can start from."""
        answer = await self._connection.call(methods.LIST_TEMPLATES, api.ListTemplatesRequest(), again=True)
        return [Template.of(template) for template in answer.templates]
