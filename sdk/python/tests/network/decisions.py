"""What functions of this process decide for a sandbox, seen from both sides. Each step is told by a line."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time

import pytest

from belljar import AsyncBelljar, Belljar, Connection, Request, RequestVerdict, Sandbox, Verdict, errors

TOKEN = "Bearer token-of-the-host"


def page(url: str, method: str = "GET") -> str:
    return (
        "import urllib.request, urllib.error\n"
        "try:\n"
        f"    asked = urllib.request.Request({url!r}, method={method!r}, headers={{'X-Own': 'mine', 'Cookie': 'c'}})\n"
        "    print(urllib.request.urlopen(asked, timeout=20).read().decode())\n"
        "except urllib.error.HTTPError as error:\n"
        "    print(error.code, error.read().decode())\n"
        "except OSError as error:\n"
        "    print('denied')\n"
    )


def fetch(sandbox: Sandbox, url: str, method: str = "GET") -> str:
    return sandbox.run_python(page(url, method), timeout=60, check=True).stdout.strip()


def denied(sandbox: Sandbox, url: str) -> bool:
    told = fetch(sandbox, url)
    return told == "denied" or told.startswith("403 ")


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def reasons(sandbox: Sandbox) -> set[tuple[str, str | None, str]]:
    return {(one.stage, one.host, one.reason) for one in sandbox.network.log()}


def expect_reasons(sandbox: Sandbox, *expected: tuple[str, str, str]) -> None:
    """Flows are written down when they end, which may be a moment after their process did."""
    end = time.monotonic() + 60
    while not (told := reasons(sandbox)).issuperset(expected):
        assert time.monotonic() < end, told


def decided(client: Belljar) -> None:
    asked: list[Connection] = []

    def decide(connection: Connection) -> Verdict | None:
        asked.append(connection)
        if connection.name == "secure.test":
            raise RuntimeError("it broke")
        if connection.is_dns or connection.name == "origin.test":
            return connection.accept()
        # The name may be resolved, but nothing is said about the connection.
        return None

    with client.sandboxes.create(on_connection=decide) as sandbox:
        shown = sandbox.network.show()
        assert (shown.mode, shown.callback_connections, shown.callback_requests) == ("allowlist", True, False)
        assert fetch(sandbox, "http://origin.test/") == "a page of origin.test"
        assert denied(sandbox, "http://other.test/")
        assert denied(sandbox, "https://secure.test/")
        # The name comes from our DNS; what the request says about its host does not matter.
        lie = sandbox.run("curl -s -m 20 -H 'host: origin.test' http://other.test/")
        assert "page" not in lie.stdout
        assert denied(sandbox, "http://11.0.0.12/")
        expect_reasons(
            sandbox,
            ("flow", "origin.test", "callback-allows"),
            ("flow", "other.test", "callback-denies"),
            ("dns", "secure.test", "callback-unanswered"),
        )
        flow = next(one for one in asked if one.host == "origin.test")
        assert (flow.transport, flow.destination.ip, flow.destination.port) == ("tcp", "11.0.0.10", 80)
        assert flow.destination.is_public_internet
        assert flow.source.port
        assert any(one.host is None and one.destination.ip == "11.0.0.12" for one in asked if not one.is_dns)
        records = [one for one in asked if one.is_dns and one.dns_name == "origin.test"]
        assert {one.dns_type for one in records} >= {"A"}
    print("decided")


def datagrams(client: Belljar) -> None:
    asked: list[Connection] = []

    def decide(connection: Connection) -> Verdict | None:
        asked.append(connection)
        return connection.accept() if connection.is_dns or connection.host == "origin.test" else None

    def say(host: str, port: int, patience: int = 3) -> str:
        code = f"import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.settimeout({patience})\n"
        code += f"s.sendto(b'hello', ({host!r}, {port}))\ntry:\n    print(s.recv(100).decode())\n"
        return sandbox.run_python(code + "except OSError:\n    print('nothing')\n").stdout.strip()

    with client.sandboxes.create(on_connection=decide, udp_ports=[9999]) as sandbox:
        assert say("origin.test", 9999, patience=60) == "hello"
        assert say("other.test", 9999) == "nothing"
        assert say("origin.test", 9998) == "nothing"
        flows = [(one.transport, one.host, one.destination.port) for one in asked if not one.is_dns]
        assert flows == [("udp", "origin.test", 9999), ("udp", "other.test", 9999)]
    with pytest.raises(errors.InvalidArgument):
        client.sandboxes.create(udp_ports=[9999], network="allowlist", allow=["origin.test"])
    print("datagrams")


def shown(client: Belljar) -> None:
    seen: list[Request] = []

    def decide(connection: Connection) -> Verdict | None:
        if connection.is_dns:
            return connection.accept()
        return connection.accept_http() if connection.host in ("origin.test", "secure.test") else None

    def handle(request: Request) -> RequestVerdict:
        seen.append(request)
        if request.method != "GET":
            return request.deny("this sandbox only reads")
        request.remove_header("cookie")
        return request.accept({"Authorization": TOKEN})

    with client.sandboxes.create(on_connection=decide, on_request=handle) as sandbox:
        for scheme, host in (("http", "origin.test"), ("https", "secure.test")):
            told = fetch(sandbox, f"{scheme}://{host}/digest")
            assert told == digest(TOKEN), (told, reasons(sandbox))
            told = fetch(sandbox, f"{scheme}://{host}/headers")
            assert "token-of-the-host" not in told
            headers = json.loads(told)
            assert headers["x-own"] == "mine"
            assert "cookie" not in headers
            refused = fetch(sandbox, f"{scheme}://{host}/page", "DELETE")
            assert refused.startswith("403")
            assert "this sandbox only reads" in refused
        # What is not HTTP fails on what was accepted as HTTP.
        raw = "import socket\ns = socket.create_connection(('origin.test', 80), 10)\n"
        raw += "s.sendall(b'SSH-2.0-x\\r\\n\\r\\n')\n"
        assert "200" not in sandbox.run_python(raw + "print(s.recv(100))").stdout
        first = seen[0]
        assert (first.url, first.method, first.protocol) == ("http://origin.test/digest", "GET", "http/1.1")
        assert (first.host, first.destination.ip, first.tls) == ("origin.test", "11.0.0.10", None)
        assert first.header("x-own") == "mine"
        secure = next(one for one in seen if one.host == "secure.test")
        assert secure.url == "https://secure.test/digest"
        assert secure.tls is not None
        assert secure.tls.sni == "secure.test"
        expect_reasons(
            sandbox,
            ("request", "secure.test", "callback-denies"),
            ("request", "secure.test", "callback-allows"),
        )
    # Beside a list: what it allows is shown too, and nothing else is reached.
    with client.sandboxes.create(network="allowlist", allow=["origin.test"], on_request=handle) as sandbox:
        assert fetch(sandbox, "http://origin.test/digest") == digest(TOKEN)
        assert denied(sandbox, "http://other.test/")
    print("shown")


async def asynchronous() -> None:
    async def decide(connection: Connection) -> Verdict | None:
        await asyncio.sleep(0)
        return connection.accept() if connection.is_dns else connection.accept_http()

    async with AsyncBelljar() as client:
        async with await client.sandboxes.create(callback=["connections"]) as sandbox:
            # Nobody decides yet.
            early = await sandbox.run_python(page("http://origin.test/digest"), timeout=60, check=True)
            assert early.stdout.strip() == "denied"
            sandbox.on_connection(decide)

            @sandbox.on_request
            async def handle(request: Request) -> RequestVerdict:
                await asyncio.sleep(0)
                return request.accept({"authorization": TOKEN})

            done = await sandbox.run_python(page("http://origin.test/digest"), timeout=60, check=True)
            assert done.stdout.strip() == digest(TOKEN)
            many = "import concurrent.futures, urllib.request\n"
            many += "get = lambda _: urllib.request.urlopen('http://origin.test/digest', timeout=60).read().decode()\n"
            many += "with concurrent.futures.ThreadPoolExecutor(16) as pool:\n"
            many += "    print(set(pool.map(get, range(100))))\n"
            done = await sandbox.run_python(many, timeout=120, check=True)
            assert done.stdout.strip() == str({digest(TOKEN)})
    print("asynchronous")


def approved(client: Belljar) -> None:
    def decide(connection: Connection) -> Verdict:
        assert not connection.is_dns, "the name stands for what is asked about"
        return connection.accept(scope="sandbox") if connection.host == "other.test" else connection.deny("no")

    with client.sandboxes.create(network="allowlist", allow=["origin.test"], ask=60, on_connection=decide) as sandbox:
        assert fetch(sandbox, "http://origin.test/") == "a page of origin.test"
        assert fetch(sandbox, "http://other.test/") == "a page of other.test"
        assert denied(sandbox, "http://index.test/")
        expect_reasons(sandbox, ("flow", "other.test", "approved"), ("flow", "index.test", "not-approved"))
    print("approved")


def gone(client: Belljar) -> None:
    with Belljar() as other:
        sandbox = other.sandboxes.create(on_connection=lambda connection: connection.accept())
        assert fetch(sandbox, "http://origin.test/") == "a page of origin.test"
    with client.sandboxes.get(sandbox.id) as left:
        assert denied(left, "http://origin.test/")
        expect_reasons(left, ("dns", "origin.test", "callback-unanswered"))
    print("gone")


def given(client: Belljar) -> None:
    credential = {
        "name": "api",
        "source": {"callback": "token"},
        "host": "origin.test",
        "inject": "bearer",
        "plain_http": True,
    }
    policy = {
        "name": "given",
        "version": "1.0",
        "defaults": {"action": "allow"},
        "network_allowlist": ["origin.test"],
        "credentials": [credential],
    }
    values = iter(["first-value", "second-value"])
    with client.sandboxes.create(policy=policy, secrets={"token": lambda: next(values)}) as sandbox:
        assert fetch(sandbox, "http://origin.test/digest") == digest("Bearer first-value")
        assert fetch(sandbox, "http://origin.test/digest") == digest("Bearer second-value")
        # The function fails from here on: the request is not sent without it.
        assert fetch(sandbox, "http://origin.test/digest").startswith("502")
    print("given")


def refused(client: Belljar) -> None:
    with client.sandboxes.create(network="allowlist", allow=["origin.test"]) as sandbox:
        with pytest.raises(errors.InvalidArgument, match="without decisions"):
            sandbox.serve(on_connection=lambda connection: connection.accept())
        with pytest.raises(errors.InvalidArgument, match="without a look"):
            sandbox.serve(on_request=lambda request: request.accept())
    with pytest.raises(errors.ConflictingOptions):
        client.sandboxes.create(network="full", on_connection=lambda connection: connection.accept())
    with pytest.raises(errors.InvalidArgument, match="`everything`"):
        client.sandboxes.create(callback=["everything"])
    print("refused")


with Belljar() as client:
    decided(client)
    datagrams(client)
    shown(client)
    asyncio.run(asynchronous())
    approved(client)
    gone(client)
    given(client)
    refused(client)
