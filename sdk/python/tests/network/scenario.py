"""What a sandbox's network does, seen from both sides. Runs at the edge of `world.sh`; each step is told by a line."""

from __future__ import annotations

import time

import pytest

from belljar import Belljar, Sandbox, errors


def fetch(sandbox: Sandbox, url: str) -> str:
    code = f"import urllib.request\nprint(urllib.request.urlopen({url!r}, timeout=10).read().decode())"
    result = sandbox.run_python(code, timeout=30)
    return result.stdout.strip() if result.ok else "denied"


def reached(sandbox: Sandbox) -> set[str | None]:
    return {decision.host for decision in sandbox.network.log() if decision.verdict == "allow"}


def rules(client: Belljar) -> None:
    with client.sandboxes.create(network="allowlist", allow=["origin.test"]) as sandbox:
        assert sandbox.network.show().mode == "allowlist"
        assert fetch(sandbox, "http://origin.test/") == "a page of origin.test"
        assert fetch(sandbox, "http://other.test/") == "denied"
        assert list(sandbox.network.allow("other.test").allow) == ["origin.test", "other.test"]
        assert fetch(sandbox, "http://other.test/") == "a page of other.test"
        assert "other.test" in sandbox.network.deny("other.test").deny
        assert fetch(sandbox, "http://other.test/") == "denied"
        # Flows are written down when they end, which may be a moment after their process did.
        end = time.monotonic() + 60
        while not (allowed := reached(sandbox)) >= {"origin.test", "other.test"}:
            assert time.monotonic() < end, allowed
        assert all((one.pid is None) == (one.program is None) for one in sandbox.network.log())
        denied = list(sandbox.network.log(denied=True))
        assert denied
        assert all(decision.verdict == "deny" for decision in denied)
        assert any(held(sandbox, seconds) for seconds in (0.1, 1, 4, 16, 32)), "nobody was ever found"
    print("rules")


def held(sandbox: Sandbox, seconds: float) -> bool:
    """Holds a connection for so long; whether the process that did is on record, which nothing waits for."""
    code = "import os, socket, time\ns = socket.create_connection(('origin.test', 80), 60)\n"
    pid = int(sandbox.run_python(code + f"time.sleep({seconds})\nprint(os.getpid())", timeout=90, check=True).stdout)
    return any(one.pid == pid and one.program and one.process_id for one in sandbox.network.log())


def packages(client: Belljar) -> None:
    with client.sandboxes.create() as sandbox:
        for wrong in (["--index-url=x"], ["../path"], ["a b"], []):
            with pytest.raises(errors.InvalidArgument):
                sandbox.pip_install(wrong)
        with pytest.raises(errors.NetworkDenied, match=r"`pypi\.org`, `files\.pythonhosted\.org`"):
            sandbox.pip_install(["requests"])
    trust = {"PIP_TRUSTED_HOST": "index.test"}
    with client.sandboxes.create(network="allowlist", allow=["index.test"], env=trust) as sandbox:
        sandbox.pip_install(["tiny-package==1.0"], index_url="http://index.test/simple")
        assert sandbox.run_python("import tiny_package; print(tiny_package.ANSWER)").stdout == "42\n"
    print("packages")


with Belljar() as client:
    rules(client)
    packages(client)
