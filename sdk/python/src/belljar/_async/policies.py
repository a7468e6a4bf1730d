"""Policies that the server keeps by name."""

from __future__ import annotations

from belljar import _policy
from belljar._async.connection import AsyncConnection
from belljar._generated import api, methods
from belljar._kept import LearnedPolicy
from belljar._models import PolicyInfo
from belljar._policy import PolicySource


class AsyncPolicies:
    """Each change is a new version; sandboxes name one as `name` or `name@version`.

    tenant is for administrators: whose it is. Others always have their own.
    """

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def put(self, name: str, policy: PolicySource, *, tenant: str | None = None) -> PolicyInfo:
        """Keeps a document (a file, a text or a dictionary). What says the same as the newest is not kept twice."""
        document = api.PolicyDocument(origin=name, text=_policy.document(policy))
        request = api.PutPolicyRequest(name=name, documents=[document], tenant=tenant)
        return PolicyInfo.of(await self._connection.call(methods.PUT_POLICY, request, again=True))

    async def get(self, name: str, *, tenant: str | None = None) -> PolicyInfo:
        """One version, with what its documents say together."""
        request = api.GetPolicyRequest(name=name, tenant=tenant)
        return PolicyInfo.of(await self._connection.call(methods.GET_POLICY, request, again=True))

    async def list(self, name: str | None = None, *, tenant: str | None = None) -> list[PolicyInfo]:
        """The newest version of each, or every version of one."""
        request = api.ListPoliciesRequest(name=name, tenant=tenant)
        answer = await self._connection.call(methods.LIST_POLICIES, request, again=True)
        return [PolicyInfo.of(policy) for policy in answer.policies]

    async def remove(self, name: str, *, tenant: str | None = None) -> None:
        """Removes a version, or all. Sandboxes that run under one go on."""
        await self._connection.call(methods.REMOVE_POLICY, api.RemovePolicyRequest(name=name, tenant=tenant))

    async def learn(self, sandbox: str) -> LearnedPolicy:
        """The smallest document that allows what a sandbox did, for review. See `record_policy` of `create`."""
        answer = await self._connection.call(methods.LEARN_POLICY, api.LearnPolicyRequest(sandbox=sandbox), again=True)
        return LearnedPolicy(answer.document, tuple(answer.notes))
