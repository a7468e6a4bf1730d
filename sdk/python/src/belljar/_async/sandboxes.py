"""Creating and finding sandboxes, and what happens to them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from typing_extensions import Unpack

from belljar import _requests
from belljar._async.connection import AsyncConnection
from belljar._async.sandbox import AsyncSandbox
from belljar._generated import api, methods
from belljar._models import Event, Explanation
from belljar._patience import LOST
from belljar._requests import CreateOptions


async def opened(
    connection: AsyncConnection, message: api.Sandbox, options: CreateOptions, *, ours: bool = True
) -> AsyncSandbox:
    """A sandbox, answered for as the options say. Where that fails, one that is ours alone is gone again."""
    sandbox = AsyncSandbox(connection, message, timeout=options.get("timeout"))
    tools = options.get("tools") or ()
    on_connection, on_request = options.get("on_connection"), options.get("on_request")
    secrets = options.get("secrets")
    if tools or on_connection or on_request or secrets:
        try:
            await sandbox.serve(tools=tools, on_connection=on_connection, on_request=on_request, secrets=secrets)
        except BaseException:
            if ours:
                await sandbox.destroy()
            raise
    return sandbox


class AsyncSandboxes:
    """The sandboxes of a server that this client may see."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(self, **options: Unpack[CreateOptions]) -> AsyncSandbox:
        """Creates a sandbox; as a context manager it is destroyed at the end. See `CreateOptions`."""
        return await self._create(_requests.create(**options), options)

    async def get_or_create(self, name: str, /, **options: Unpack[CreateOptions]) -> AsyncSandbox:
        """The sandbox of that name, or a new one."""
        options["name"] = name
        request = _requests.create(**options)
        request.get_or_create = True
        return await self._create(request, options)

    async def _create(self, request: api.CreateSandboxRequest, options: CreateOptions) -> AsyncSandbox:
        message = await self._connection.call(methods.CREATE_SANDBOX, request, again=True)
        return await opened(self._connection, message, options, ours=not request.get_or_create)

    async def get(self, sandbox: str) -> AsyncSandbox:
        """The sandbox of that name or id; by id also one that has ended."""
        request = api.GetSandboxRequest(sandbox=sandbox)
        return AsyncSandbox(self._connection, await self._connection.call(methods.GET_SANDBOX, request, again=True))

    async def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        states: Sequence[str] = (),
        name_prefix: str | None = None,
        tenant: str | None = None,
    ) -> list[AsyncSandbox]:
        """Sandboxes in the order of their creation; those that have not ended unless `states` says otherwise."""
        request = api.ListSandboxesRequest(
            labels=labels,
            metadata=metadata,
            states=_requests.numbers(states, api.SANDBOX_STATE_WORDS, "states"),
            name_prefix=name_prefix,
            tenant=tenant,
        )
        found: list[AsyncSandbox] = []
        while True:
            page = await self._connection.call(methods.LIST_SANDBOXES, request, again=True)
            found.extend(AsyncSandbox(self._connection, message) for message in page.sandboxes)
            if not page.HasField("next_page_token"):
                return found
            request.page_token = page.next_page_token

    async def explain(self, **options: Unpack[CreateOptions]) -> Explanation:
        """What `create` would give, with every rule and what holds it. Nothing is made."""
        request = api.ExplainSandboxRequest(create=_requests.create(**options))
        return Explanation.of(await self._connection.call(methods.EXPLAIN_SANDBOX, request, again=True))

    async def events(
        self,
        *,
        since: int | None = None,
        sandbox: str | None = None,
        kinds: Sequence[str] = (),
        follow: bool = True,
    ) -> AsyncIterator[Event]:
        """What happens, as it happens, after the event `since` (absent: from now on), across lost connections.

        Without `follow` it ends with what has happened by now.
        """
        request = api.WatchEventsRequest(
            since=since,
            sandbox=sandbox,
            kinds=_requests.numbers(kinds, api.EVENT_KIND_WORDS, "kinds"),
            once=not follow,
        )
        patience = self._connection.patience()
        while True:
            try:
                async for message in self._connection.download(methods.WATCH_EVENTS, request):
                    request.since = message.seq
                    patience.progress()
                    yield Event.of(message)
                if not follow:
                    return
            except LOST as error:
                await self._connection.recover(patience, error)
