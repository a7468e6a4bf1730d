"""For administrators: who may use a server, how much of it, and who is told what happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from belljar import _administration, _requests
from belljar._administration import Key, Quotas, Tenant, Webhook
from belljar._async.connection import AsyncConnection
from belljar._generated import api, methods


class AsyncKeys:
    """The keys that open a server."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(
        self,
        name: str,
        *,
        tenant: str | None = None,
        role: str | None = None,
        sandbox: str | None = None,
        scopes: Sequence[str] = (),
        expires_in: float | None = None,
    ) -> Key:
        """Makes a key; its `secret` is in this answer and nowhere else.

        role: `admin`, `tenant` (the default) or `sandbox`, which opens only that one. scopes: of `read`, `write`,
        `exec`, `files` and `keys`; absent: all that the role may. expires_in: seconds; absent: never, or with the key
        that makes it.
        """
        request = api.CreateKeyRequest(
            name=name, tenant=tenant, role=role, sandbox=sandbox, scopes=scopes, expires_in_secs=expires_in
        )
        answer = await self._connection.call(methods.CREATE_KEY, request)
        return Key.of(answer.key, answer.secret)

    async def list(self, *, tenant: str | None = None) -> list[Key]:
        """All, or those of one tenant."""
        answer = await self._connection.call(methods.LIST_KEYS, api.ListKeysRequest(tenant=tenant), again=True)
        return [Key.of(key) for key in answer.keys]

    async def revoke(self, key_id: str) -> Key:
        """Nobody gets in with it any more."""
        return Key.of(await self._connection.call(methods.REVOKE_KEY, api.RevokeKeyRequest(key_id=key_id), again=True))


class AsyncTenants:
    """The owners of sandboxes, and what each may use."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(self, tenant: str, *, quotas: Quotas | Mapping[str, Any] | None = None) -> Tenant:
        """Makes one. What the quotas leave out is not limited."""
        request = api.CreateTenantRequest(tenant=tenant, quotas=_administration.quotas(quotas))
        return Tenant.of(await self._connection.call(methods.CREATE_TENANT, request))

    async def get(self, tenant: str) -> Tenant:
        """One, with what is in use."""
        request = api.GetTenantRequest(tenant=tenant)
        return Tenant.of(await self._connection.call(methods.GET_TENANT, request, again=True))

    async def list(self) -> list[Tenant]:
        """All of them."""
        answer = await self._connection.call(methods.LIST_TENANTS, api.ListTenantsRequest(), again=True)
        return [Tenant.of(tenant) for tenant in answer.tenants]

    async def set_quotas(self, tenant: str, quotas: Quotas | Mapping[str, Any]) -> Tenant:
        """In place of the quotas before: what is left out is not limited."""
        request = api.SetQuotasRequest(tenant=tenant, quotas=_administration.quotas(quotas))
        return Tenant.of(await self._connection.call(methods.SET_QUOTAS, request, again=True))

    async def remove(self, tenant: str) -> None:
        """Removes one that owns no sandboxes."""
        await self._connection.call(methods.REMOVE_TENANT, api.RemoveTenantRequest(tenant=tenant))


class AsyncWebhooks:
    """Addresses that are told what happens."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def create(self, url: str, *, secret: str, kinds: Sequence[str] = ()) -> Webhook:
        """secret signs what is sent: HMAC-SHA-256 in the header `belljar-signature`. Without kinds: everything."""
        request = api.CreateWebhookRequest(
            url=url, secret=secret, kinds=_requests.numbers(kinds, api.EVENT_KIND_WORDS, "kinds")
        )
        return Webhook.of(await self._connection.call(methods.CREATE_WEBHOOK, request))

    async def list(self) -> list[Webhook]:
        """With how far each has got, and how it failed."""
        answer = await self._connection.call(methods.LIST_WEBHOOKS, api.ListWebhooksRequest(), again=True)
        return [Webhook.of(webhook) for webhook in answer.webhooks]

    async def remove(self, webhook_id: str) -> None:
        """Tells that address no more."""
        await self._connection.call(methods.REMOVE_WEBHOOK, api.RemoveWebhookRequest(webhook_id=webhook_id))
