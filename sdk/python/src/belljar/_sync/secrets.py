# Made from src/belljar/_async/secrets.py by mirror.py; change that one.
"""Secrets that the server keeps for requests of sandboxes. Values go in and never come out."""

from __future__ import annotations

from belljar._generated import api, methods
from belljar._kept import Secret
from belljar._sync.connection import Connection


class SecretStore:
    """Secrets by name, for credentials of a policy with `source: {store: NAME}`. Administrators may name a tenant."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def set(self, name: str, value: str, *, tenant: str | None = None) -> Secret:
        """Keeps a value under a name, in the place of an earlier one: requests from now on use it."""
        request = api.SetSecretRequest(name=name, value=value, tenant=tenant)
        return Secret.of(self._connection.call(methods.SET_SECRET, request, again=True))

    def list(self) -> list[Secret]:
        """Names and times."""
        answer = self._connection.call(methods.LIST_SECRETS, api.ListSecretsRequest(), again=True)
        return [Secret.of(secret) for secret in answer.secrets]

    def remove(self, name: str, *, tenant: str | None = None) -> None:
        """Requests that need it fail from now on."""
        self._connection.call(methods.REMOVE_SECRET, api.RemoveSecretRequest(name=name, tenant=tenant))
