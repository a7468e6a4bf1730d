"""The kept files of sandboxes, and new sandboxes from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from typing_extensions import Unpack

from belljar import _requests
from belljar._async.connection import AsyncConnection
from belljar._async.sandbox import AsyncSandbox
from belljar._async.sandboxes import opened
from belljar._generated import api, methods
from belljar._kept import Snapshot
from belljar._requests import CreateOptions


class AsyncSnapshots:
    """The snapshots of a server that this client may see. `sandbox.snapshot()` makes them."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(
        self,
        sandbox: str,
        *,
        name: str | None = None,
        labels: Mapping[str, str] | None = None,
        paths: Sequence[str] = (),
    ) -> Snapshot:
        """Keeps the files of a sandbox, given by name or id. Processes and their memory are not kept.

        name: one that no other snapshot has. paths: absent `/workspace`, `/home/user` and `/output`.
        """
        request = api.CreateSnapshotRequest(sandbox=sandbox, name=name, labels=labels, paths=paths)
        return Snapshot.of(await self._connection.call(methods.CREATE_SNAPSHOT, request))

    async def get(self, snapshot: str) -> Snapshot:
        """One snapshot, by name or id."""
        request = api.GetSnapshotRequest(snapshot_id=snapshot)
        return Snapshot.of(await self._connection.call(methods.GET_SNAPSHOT, request, again=True))

    async def list(
        self, *, labels: Mapping[str, str] | None = None, sandbox: str | None = None, tenant: str | None = None
    ) -> list[Snapshot]:
        """Snapshots that match, oldest first."""
        request = api.ListSnapshotsRequest(labels=labels, sandbox=sandbox, tenant=tenant, page_size=1000)
        found: list[Snapshot] = []
        while True:
            page = await self._connection.call(methods.LIST_SNAPSHOTS, request, again=True)
            found.extend(Snapshot.of(message) for message in page.snapshots)
            if not page.HasField("next_page_token"):
                return found
            request.page_token = page.next_page_token

    async def restore(self, snapshot: str, /, **options: Unpack[CreateOptions]) -> AsyncSandbox:
        """A new sandbox with the files of a snapshot, which are verified first. As often as wanted: each is a fork.

        Template, limits, network, user, isolation and policy are as they were where the options say nothing.
        """
        request = api.RestoreSnapshotRequest(snapshot_id=snapshot, create=_requests.create(**options))
        # There is none for a restore, so that it is never sent twice either.
        request.create.ClearField("idempotency_key")
        message = await self._connection.call(methods.RESTORE_SNAPSHOT, request)
        return await opened(self._connection, message, options)

    async def remove(self, snapshot: str) -> None:
        """Removes a snapshot. Sandboxes made from it stay."""
        await self._connection.call(methods.REMOVE_SNAPSHOT, api.RemoveSnapshotRequest(snapshot_id=snapshot))
