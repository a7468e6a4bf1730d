"""Secrets that the server keeps for requests of sandboxes. Values go in and never come out."""

from __future__ import annotations

from belljar._async.connection import AsyncConnection
from belljar._generated import api, methods
from belljar._kept import Secret


class AsyncSecretStore:
    """Secrets by name, for credentials of a policy with `source: {store: NAME}`. Administrators may name a tenant."""

    def __init__(self, connection: AsyncConnection) -> None:
        self._connection = connection

    async def set(self, name: str, value: str, *, tenant: str | None = None) -> Secret:
        """Keeps a value under a name, in the place of an earlier one: requests from now on use it."""
        request = api.SetSecretRequest(name=name, value=value, tenant=tenant)
        return Secret.of(await self._connection.call(methods.SET_SECRET, request, again=True))

    async def list(self) -> list[Secret]:
        """Names and times."""
        answer = await self._connection.call(methods.LIST_SECRETS, api.ListSecretsRequest(), again=True)
        return [Secret.of(secret) for secret in answer.secrets]

    async def remove(self, name: str, *, tenant: str | None = None) -> None:
        """Requests that need it fail from now on."""
        await self._connection.call(methods.REMOVE_SECRET, api.RemoveSecretRequest(name=name, tenant=tenant))
