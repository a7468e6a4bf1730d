# Made from tests/asynchronous/test_ports.py by mirror.py; change that one.
"""Ports of a sandbox, reached from here."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import urllib.request
from pathlib import Path

import pytest

from belljar import Belljar, Sandbox, errors

from .aside import aside

SERVER = """
import socket, hashlib
listener = socket.create_server(("127.0.0.1", 8000))
print("listening", flush=True)
while True:
    peer, _ = listener.accept()
    data = b""
    while piece := peer.recv(65536):
        data += piece
    peer.sendall(hashlib.sha256(data).hexdigest().encode())
    peer.close()
"""


def exchange(address: tuple[str, int], data: bytes) -> bytes:
    """Sends everything, says that it is over, and reads to the end."""
    with socket.create_connection(address, timeout=20) as peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := peer.recv(65536):
            answer += piece
    return answer


def test_streams_are_joined_to_a_port(sandbox: Sandbox) -> None:
    process = sandbox.start(["python3", "-c", SERVER])
    for _ in process:
        break
    data = os.urandom(1_000_000)
    with sandbox.forward(8000) as forward:
        for _ in range(3):
            answer = aside(lambda: exchange(forward.address, data))
            assert answer.decode() == hashlib.sha256(data).hexdigest()
    with sandbox.forward(8001) as forward:
        # Nobody listens there: the connection just ends.
        assert aside(lambda: exchange(forward.address, b"")) == b""


def test_forwards_end_with_the_client(shared_state: Path, sandbox: Sandbox) -> None:
    with Belljar(state_dir=shared_state) as client:
        forward = (client.sandboxes.get(sandbox.id)).forward(8000)
        with pytest.raises(errors.InvalidArgument):
            sandbox.forward(65536)
    with pytest.raises(ConnectionRefusedError):
        aside(lambda: exchange(forward.address, b""))


def test_a_port_is_shown_over_http(own_state: Path, binary: str) -> None:
    command = [binary, "--state-dir", str(own_state), "serve", "--listen", "127.0.0.1:0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert server.stdout is not None
    json.loads(server.stdout.readline())
    with Belljar(f"unix:{own_state}/server.sock") as client:
        with client.sandboxes.create(files={"/workspace/page.txt": "a page"}) as sandbox:
            process = sandbox.start("exec python3 -u -m http.server --bind 127.0.0.1 8000")
            for _ in process:
                break
            shown = sandbox.expose(8000)
            assert shown.token
            assert shown.url
            assert [port.port for port in sandbox.ports()] == [8000]
            host, port = shown.url.split("//")[1].split("/")[0].split(":")
            headers = {"host": f"{host}:{port}", "x-belljar-token": shown.token}
            request = urllib.request.Request(f"http://127.0.0.1:{port}/page.txt", headers=headers)
            page = aside(lambda: urllib.request.urlopen(request, timeout=20).read())
            assert page == b"a page"
            assert sandbox.hide(8000)
            assert not sandbox.hide(8000)
            assert sandbox.ports() == []
    server.terminate()
    server.wait(60)


def test_ports_are_joined_over_tls(own_state: Path, binary: str, certificate: tuple[Path, Path]) -> None:
    state = ["--state-dir", str(own_state)]
    tls = ["--tls-cert", str(certificate[0]), "--tls-key", str(certificate[1])]
    command = [binary, *state, "serve", "--listen", "127.0.0.1:0", "--json", *tls]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout is not None
        addresses = json.loads(server.stdout.readline())["addresses"]
        url = next(address for address in addresses if address.startswith("https://"))
        made = subprocess.run([binary, *state, "keys", "create", "--json"], check=True, capture_output=True, timeout=60)
        key = json.loads(made.stdout)["secret"]
        data = os.urandom(300_000)
        with Belljar(url, api_key=key, ca=certificate[0]) as client:
            with client.sandboxes.create() as sandbox:
                process = sandbox.start(["python3", "-c", SERVER])
                for _ in process:
                    break
                with sandbox.forward(8000) as forward:
                    answer = aside(lambda: exchange(forward.address, data))
                    assert answer.decode() == hashlib.sha256(data).hexdigest()
        # Whoever was not told of the certificate does not believe it.
        with pytest.raises(errors.ServerUnreachable):
            with Belljar(url, api_key=key, patience=0) as client:
                client.server()
        with pytest.raises(errors.InvalidArgument, match="ca"):
            Belljar(url, ca=own_state / "absent")
    finally:
        server.terminate()
        server.wait(60)
