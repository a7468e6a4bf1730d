# Made from src/belljar/_async/sandboxes.py by mirror.py; change that one.
"""Creating and finding sandboxes, and what happens to them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from typing_extensions import Unpack

from belljar import _requests
from belljar._generated import api, methods
from belljar._models import Event, Explanation
from belljar._patience import LOST
from belljar._requests import CreateOptions
from belljar._sync.connection import Connection
from belljar._sync.sandbox import Sandbox


def opened(connection: Connection, message: api.Sandbox, options: CreateOptions, *, ours: bool = True) -> Sandbox:
    """A sandbox, answered for as the options say. Where that fails, one that is ours alone is gone again."""
    sandbox = Sandbox(connection, message, timeout=options.get("timeout"))
    tools = options.get("tools") or ()
    on_connection, on_request = options.get("on_connection"), options.get("on_request")
    secrets = options.get("secrets")
    if tools or on_connection or on_request or secrets:
        try:
            sandbox.serve(tools=tools, on_connection=on_connection, on_request=on_request, secrets=secrets)
        except BaseException:
            if ours:
                sandbox.destroy()
            raise
    return sandbox


class Sandboxes:
    """The sandboxes of a server that this client may see."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def create(self, **options: Unpack[CreateOptions]) -> Sandbox:
        """Creates a sandbox; as a context manager it is destroyed at the end. See `CreateOptions`."""
        return self._create(_requests.create(**options), options)

    def get_or_create(self, name: str, /, **options: Unpack[CreateOptions]) -> Sandbox:
        """The sandbox of that name, or a new one."""
        options["name"] = name
        request = _requests.create(**options)
        request.get_or_create = True
        return self._create(request, options)

    def _create(self, request: api.CreateSandboxRequest, options: CreateOptions) -> Sandbox:
        message = self._connection.call(methods.CREATE_SANDBOX, request, again=True)
        return opened(self._connection, message, options, ours=not request.get_or_create)

    def get(self, sandbox: str) -> Sandbox:
        """The sandbox of that name or id; by id also one that has ended."""
        request = api.GetSandboxRequest(sandbox=sandbox)
        return Sandbox(self._connection, self._connection.call(methods.GET_SANDBOX, request, again=True))

    def list(
        self,
        *,
        labels: Mapping[str, str] | None = None,
        metadata: Mapping[str, str] | None = None,
        states: Sequence[str] = (),
        name_prefix: str | None = None,
        tenant: str | None = None,
    ) -> list[Sandbox]:
        """Sandboxes in the order of their creation; those that have not ended unless `states` says otherwise."""
        request = api.ListSandboxesRequest(
            labels=labels,
            metadata=metadata,
            states=_requests.numbers(states, api.SANDBOX_STATE_WORDS, "states"),
            name_prefix=name_prefix,
            tenant=tenant,
        )
        found: list[Sandbox] = []
        while True:
            page = self._connection.call(methods.LIST_SANDBOXES, request, again=True)
            found.extend(Sandbox(self._connection, message) for message in page.sandboxes)
            if not page.HasField("next_page_token"):
                return found
            request.page_token = page.next_page_token

    def explain(self, **options: Unpack[CreateOptions]) -> Explanation:
        """What `create` would give, with every rule and what holds it. Nothing is made."""
        request = api.ExplainSandboxRequest(create=_requests.create(**options))
        return Explanation.of(self._connection.call(methods.EXPLAIN_SANDBOX, request, again=True))

    def events(
        self,
        *,
        since: int | None = None,
        sandbox: str | None = None,
        kinds: Sequence[str] = (),
        follow: bool = True,
    ) -> Iterator[Event]:
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
                for message in self._connection.download(methods.WATCH_EVENTS, request):
                    request.since = message.seq
                    patience.progress()
                    yield Event.of(message)
                if not follow:
                    return
            except LOST as error:
                self._connection.recover(patience, error)
