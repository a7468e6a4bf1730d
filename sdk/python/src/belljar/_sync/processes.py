# Made from src/belljar/_async/processes.py by mirror.py; change that one.
"""Processes of all sandboxes: how another client finds what one has started."""

from __future__ import annotations

from collections.abc import Sequence

from belljar import _requests
from belljar._generated import api, methods
from belljar._outcomes import ProcessInfo
from belljar._sync.connection import Connection
from belljar._sync.process import Process


class Processes:
    """Every command ever started, as long as its record is kept."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def get(self, process_id: str) -> Process:
        """A process that anybody started."""
        request = api.GetProcessRequest(process_id=process_id)
        message = self._connection.call(methods.GET_PROCESS, request, again=True)
        return Process(self._connection, ProcessInfo.of(message))

    def list(self, *, sandbox: str | None = None, statuses: Sequence[str] = (), at_most: int = 1000) -> list[Process]:
        """Processes, newest first; of one sandbox, by name or id, where that is given."""
        request = api.ListProcessesRequest(
            sandbox=sandbox, statuses=_requests.numbers(statuses, api.PROCESS_STATUS_WORDS, "statuses")
        )
        found: list[Process] = []
        while True:
            page = self._connection.call(methods.LIST_PROCESSES, request, again=True)
            found.extend(Process(self._connection, ProcessInfo.of(message)) for message in page.processes)
            if not page.HasField("next_page_token") or len(found) >= at_most:
                return found[:at_most]
            request.page_token = page.next_page_token
