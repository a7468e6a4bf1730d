# Made from src/belljar/_async/client.py by mirror.py; change that one.
"""The client: a server, and what it has."""

from __future__ import annotations

import os
from types import TracebackType

from belljar._generated import api, methods
from belljar._generated.codes import InvalidArgument
from belljar._models import Server, Template
from belljar._sync.connection import Connection
from belljar._sync.policies import Policies
from belljar._sync.processes import Processes
from belljar._sync.sandboxes import Sandboxes

# Seconds that a server which went away is waited for.
PATIENCE = 30.0


class Belljar:
    """A client of one server.

    Without a URL it is the server of this machine, which is started where none runs; `BELLJAR_SERVER` and
    `BELLJAR_API_KEY` name another one. `state_dir` and `binary` say which local server, and what starts it. Where the
    connection is lost, what may safely be asked again is asked again for `patience` seconds, and streams go on where
    they were.

        with Belljar() as client:
            with client.sandboxes.create() as sandbox:
                print((sandbox.run("echo hello")).stdout)
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
        self._connection = Connection(url, api_key, state_dir, binary, patience)
        self.sandboxes = Sandboxes(self._connection)
        self.processes = Processes(self._connection)
        self.policies = Policies(self._connection)

    def __enter__(self) -> Belljar:
        self._connection.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Lets go of the connection. Sandboxes stay."""
        self._connection.close()

    def server(self) -> Server:
        """What the server is."""
        return Server.of(self._connection.call(methods.GET_SERVER, api.GetServerRequest(), again=True))

    def templates(self) -> list[Template]:
        """What sandboxes can start from."""
        answer = self._connection.call(methods.LIST_TEMPLATES, api.ListTemplatesRequest(), again=True)
        return [Template.of(template) for template in answer.templates]
