"""The client: a server, and what it has."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from datetime import datetime
from types import TracebackType

from belljar._administration import AuditRecord, Caller, Leak, Probe
from belljar._async.administration import AsyncKeys, AsyncTenants, AsyncWebhooks
from belljar._async.connection import AsyncConnection
from belljar._async.policies import AsyncPolicies
from belljar._async.processes import AsyncProcesses
from belljar._async.sandboxes import AsyncSandboxes
from belljar._async.secrets import AsyncSecretStore
from belljar._async.snapshots import AsyncSnapshots
from belljar._flows import Approval
from belljar._generated import api, methods
from belljar._generated.codes import InvalidArgument
from belljar._kept import FetchStep, Profile, fetch_step
from belljar._models import Server, Template, stamp

# Seconds that a server which went away is waited for.
PATIENCE = 30.0


class AsyncBelljar:
    """A client of one server.

    Without a URL it is the server of this machine, which is started where none runs; `BELLJAR_SERVER` and
    `BELLJAR_API_KEY` name another one. `ca` is a file of certificates (or its bytes) that those of an `https://` server
    come from, where they are none of this machine's. `state_dir` and `binary` say which local server, and what starts
    it. Where the connection is lost, what may safely be asked again is asked again for `patience` seconds, and streams
    go on where they were.

        async with AsyncBelljar() as client:
            async with await client.sandboxes.create() as sandbox:
                print((await sandbox.run("echo hello")).stdout)
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        ca: str | os.PathLike[str] | bytes | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        binary: str | os.PathLike[str] | None = None,
        patience: float = PATIENCE,
    ) -> None:
        if url and state_dir:
            raise InvalidArgument("`url` and `state_dir` name two servers", remedy="give one of them")
        if not url and not state_dir:
            url = os.environ.get("BELLJAR_SERVER") or None
            api_key = api_key or os.environ.get("BELLJAR_API_KEY") or None
        self._connection = AsyncConnection(url, api_key, ca, state_dir, binary, patience)
        self.sandboxes = AsyncSandboxes(self._connection)
        self.processes = AsyncProcesses(self._connection)
        self.snapshots = AsyncSnapshots(self._connection)
        self.policies = AsyncPolicies(self._connection)
        self.secrets = AsyncSecretStore(self._connection)
        self.keys = AsyncKeys(self._connection)
        self.tenants = AsyncTenants(self._connection)
        self.webhooks = AsyncWebhooks(self._connection)

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

    async def fetch_template(self, template: str, *, backend: str | None = None) -> AsyncIterator[FetchStep]:
        """Fetches the image that a template names, where the backend has images; ends when it is there.

        Nothing is fetched for other templates, and without a backend.
        """
        request = api.FetchTemplateRequest(template=template, backend=backend)
        async for message in self._connection.download(methods.FETCH_TEMPLATE, request):
            yield fetch_step(message)

    async def profiles(self) -> list[Profile]:
        """Network policies with a name."""
        answer = await self._connection.call(methods.LIST_PROFILES, api.ListProfilesRequest(), again=True)
        return [Profile.of(profile) for profile in answer.profiles]

    async def caller(self) -> Caller:
        """Who this client is to the server."""
        return Caller.of(await self._connection.call(methods.GET_CALLER, api.GetCallerRequest(), again=True))

    async def approvals(self, *, sandbox: str | None = None) -> list[Approval]:
        """What waits for somebody to allow it, in all sandboxes or in one, by name or id."""
        answer = await self._connection.call(
            methods.LIST_APPROVALS, api.ListApprovalsRequest(sandbox=sandbox), again=True
        )
        return [Approval.of(approval) for approval in answer.approvals]

    async def answer(self, approval_id: str, answer: str) -> Approval:
        """Answers for one that waits: `once`, `sandbox`, `always` or `deny`."""
        request = api.AnswerApprovalRequest(approval_id=approval_id, answer=answer)
        return Approval.of(await self._connection.call(methods.ANSWER_APPROVAL, request))

    async def audit(
        self,
        *,
        sandbox: str | None = None,
        actor: str | None = None,
        action: str | None = None,
        outcome: str | None = None,
        verdict: str | None = None,
        rule: str | None = None,
        policy: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        last: int | None = None,
        follow: bool = False,
    ) -> AsyncIterator[AuditRecord]:
        """Who did what to which sandbox, oldest first; all that is given must match.

        outcome: `ok`, or the code of a failure. verdict, rule, policy: decisions of policies with this answer, by this
        rule, of a policy whose digest begins so. last: only so many. With `follow` it goes on without end.
        """
        request = api.QueryAuditRequest(
            sandbox=sandbox,
            actor=actor,
            action=action,
            outcome=outcome,
            verdict=verdict,
            rule=rule,
            policy=policy,
            since=stamp(since),
            until=stamp(until),
            last=last,
            follow=follow,
        )
        async for message in self._connection.download(methods.QUERY_AUDIT, request):
            yield AuditRecord.of(message)

    async def probe(self, backend: str | None = None, *, refresh: bool = False) -> list[Probe]:
        """Tries every backend, or one, by running a tiny sandbox on it; with `refresh` also where it is known."""
        request = api.ProbeBackendsRequest(backend=backend, refresh=refresh)
        answer = await self._connection.call(methods.PROBE_BACKENDS, request, again=True)
        return [Probe.of(probe) for probe in answer.probes]

    async def find_leaks(self, *, fix: bool = False) -> list[Leak]:
        """For administrators: what no sandbox owns any more; with `fix`, what was found and removed."""
        answer = await self._connection.call(methods.FIND_LEAKS, api.FindLeaksRequest(fix=fix), again=True)
        return [Leak.of(leak) for leak in (answer.removed if fix else answer.found)]

    async def stop_server(self) -> None:
        """For administrators: drains the server and stops it. Sandboxes stay."""
        await self._connection.call(methods.STOP_SERVER, api.StopServerRequest())
