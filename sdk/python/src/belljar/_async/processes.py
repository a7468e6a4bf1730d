"""Processes of all sandboxes: how another client finds what one has started."""

from __future__ import annotations

from collections.abc import Sequence

from belljar import _requests
from belljar._async.connection import AsyncConnection
from belljar._async.process import AsyncProcess
from belljar._generated import api, methods
from belljar._outcomes import ProcessInfo


class AsyncProcesses:
    """Every command ever started, as long as its record is kept."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def get(self, process_id: str) -> AsyncProcess:
        """A process that anybody started."""
        request = api.GetProcessRequest(process_id=process_id)
        message = await self._connection.call(methods.GET_PROCESS, request, again=True)
        return AsyncProcess(self._connection, ProcessInfo.of(message))

    async def list(
        self, *, sandbox: str | None = None, statuses: Sequence[str] = (), at_most: int = 1000
    ) -> list[AsyncProcess]:
        """Processes, newest first; of one sandbox, by name or id, where that is given."""
        request = api.ListProcessesRequest(
            sandbox=sandbox, statuses=_requests.numbers(statuses, api.PROCESS_STATUS_WORDS, "statuses")
        )
        found: list[AsyncProcess] = []
        while True:
            page = await self._connection.call(methods.LIST_PROCESSES, request, again=True)
            found.extend(AsyncProcess(self._connection, ProcessInfo.of(message)) for message in page.processes)
            if not page.HasField("next_page_token") or len(found) >= at_most:
                return found[:at_most]
            request.page_token = page.next_page_token
