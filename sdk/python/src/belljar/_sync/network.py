# Made from src/belljar/_async/network.py by mirror.py; change that one.
"""The network of a sandbox: what may be reached, what was, and who is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from belljar._flows import Approval, NetworkDecision, NetworkInfo
from belljar._generated import api, methods
from belljar._sync.connection import Connection


class Network:
    """Rules may change while the sandbox runs; connections that are no longer allowed are cut."""

    def __init__(self, connection: Connection, sandbox: str) -> None:
        self._connection = connection
        self._sandbox = sandbox

    def show(self) -> NetworkInfo:
        """What may be reached."""
        request = api.GetNetworkRequest(sandbox=self._sandbox)
        return NetworkInfo.of(self._connection.call(methods.GET_NETWORK, request, again=True))

    def allow(self, *hosts: str) -> NetworkInfo:
        """Allows hosts from now on: `host`, `*.domain` or `host:port`."""
        return self._change(api.ChangeNetworkRequest(sandbox=self._sandbox, allow=hosts))

    def deny(self, *hosts: str) -> NetworkInfo:
        """Denies hosts from now on, also where a wider entry would allow them."""
        return self._change(api.ChangeNetworkRequest(sandbox=self._sandbox, deny=hosts))

    def set(
        self,
        *,
        mode: str | None = None,
        allow: Sequence[str] | None = None,
        cidrs: Sequence[str] | None = None,
        ask: float | None = None,
    ) -> NetworkInfo:
        """Replaces what is given: the mode, everything that is allowed and denied, ranges, and how long to ask."""
        return self._change(
            api.ChangeNetworkRequest(
                sandbox=self._sandbox,
                mode=mode,
                replace=None if allow is None else api.NetworkEntries(entries=allow),
                cidrs=None if cidrs is None else api.NetworkEntries(entries=cidrs),
                ask_secs=ask,
            )
        )

    def _change(self, request: api.ChangeNetworkRequest) -> NetworkInfo:
        return NetworkInfo.of(self._connection.call(methods.CHANGE_NETWORK, request, again=True))

    def log(self, *, denied: bool = False, last: int | None = None, follow: bool = False) -> Iterator[NetworkDecision]:
        """What the sandbox wanted to reach and what came of it, oldest first; with `follow`, without end."""
        request = api.ReadNetworkLogRequest(sandbox=self._sandbox, denied=denied, last=last, follow=follow)
        for message in self._connection.download(methods.READ_NETWORK_LOG, request):
            yield NetworkDecision.of(message)

    def approvals(self) -> list[Approval]:
        """What waits for somebody to allow it."""
        request = api.ListApprovalsRequest(sandbox=self._sandbox)
        answer = self._connection.call(methods.LIST_APPROVALS, request, again=True)
        return [Approval.of(approval) for approval in answer.approvals]

    def answer(self, approval_id: str, answer: str) -> Approval:
        """Answers for one that waits: `once`, `sandbox`, `always` or `deny`."""
        request = api.AnswerApprovalRequest(approval_id=approval_id, answer=answer)
        return Approval.of(self._connection.call(methods.ANSWER_APPROVAL, request))
