# Made from tests/asynchronous/test_keys.py by mirror.py; change that one.
"""A server elsewhere: its address, its keys."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from belljar import Belljar, errors


def test_a_port_wants_the_key_and_gives_each_tenant_its_own(own_state: Path, binary: str) -> None:
    keys = own_state / "keys"
    keys.write_text("operator-key-operator-key-operator\ntenant-key-tenant-key-tenant-key acme\n")
    command = [binary, "--state-dir", str(own_state), "serve", "--listen", "127.0.0.1:0", "--json"]
    server = subprocess.Popen([*command, "--api-key-file", str(keys)], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        addresses = json.loads(server.stdout.readline())["addresses"]
        url = next(address for address in addresses if address.startswith("http"))
        subprocess.run([*command[:3], "tenants", "create", "acme"], check=True, capture_output=True)
        with Belljar(url) as nobody:
            with pytest.raises(errors.Unauthenticated):
                nobody.sandboxes.list()
        with Belljar(url, api_key="tenant-key-tenant-key-tenant-key") as acme:
            with acme.sandboxes.create() as sandbox:
                assert sandbox.info.tenant == "acme"
                assert (sandbox.run("echo over TCP")).stdout == "over TCP\n"
                with pytest.raises(errors.PermissionDenied):
                    acme.sandboxes.create(workspace="/")
        with Belljar(url, api_key="operator-key-operator-key-operator") as operator:
            assert [found.info.tenant for found in operator.sandboxes.list(states=["destroyed"])] == ["acme"]
    finally:
        server.terminate()
        server.wait(60)
