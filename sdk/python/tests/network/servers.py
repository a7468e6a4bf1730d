"""The other end of the test's own internet: a resolver, web servers with a page, an echo of headers, an index.

`/digest` tells what arrived without saying it: what is hidden inside is hidden in replies, too.
"""

from __future__ import annotations

import base64
import hashlib
import http.server
import io
import json
import os
import socket
import ssl
import struct
import sys
import threading
import zipfile
from pathlib import Path

NAMES = {
    "origin.test": "11.0.0.10",
    "secure.test": "11.0.0.10",
    "index.test": "11.0.0.10",
    "other.test": "11.0.0.11",
}
WHEEL = "tiny_package-1.0-py3-none-any.whl"


def wheel() -> bytes:
    """A package with one constant in it."""
    files = {
        "tiny_package.py": b"ANSWER = 42\n",
        "tiny_package-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: tiny-package\nVersion: 1.0\n",
        "tiny_package-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(content)}\n"
    files["tiny_package-1.0.dist-info/RECORD"] = (record + "tiny_package-1.0.dist-info/RECORD,,\n").encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


class Pages(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        kind, body = "text/plain", b"a page of " + str(self.headers["host"]).encode()
        if self.path == "/headers":
            body = json.dumps({name.lower(): value for name, value in self.headers.items()}).encode()
        elif self.path == "/digest":
            body = hashlib.sha256(str(self.headers["authorization"]).encode()).hexdigest().encode()
        elif self.path.startswith("/simple/tiny-package"):
            kind, body = "text/html", f'<a href="/files/{WHEEL}">{WHEEL}</a>'.encode()
        elif self.path == f"/files/{WHEEL}":
            body = wheel()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        return


def resolve() -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("11.0.0.53", 53))
    while True:
        question, sender = server.recvfrom(2048)
        labels, at = [], 12
        while question[at]:
            labels.append(question[at + 1 : at + 1 + question[at]].decode())
            at += 1 + question[at]
        kind = struct.unpack("!H", question[at + 1 : at + 3])[0]
        address = NAMES.get(".".join(labels).lower())
        code = 0 if address else 3
        answers = b""
        if address and kind == 1:
            answers = b"\xc0\x0c" + struct.pack("!HHIH", 1, 1, 60, 4) + socket.inet_aton(address)
        head = question[:2] + struct.pack("!HHHHH", 0x8180 | code, 1, 1 if answers else 0, 0, 0)
        server.sendto(head + question[12 : at + 5] + answers, sender)


def echo() -> None:
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("0.0.0.0", 9999))
    while True:
        server.sendto(*server.recvfrom(2048))


def main() -> None:
    for address in ("11.0.0.10", "11.0.0.11"):
        web = http.server.ThreadingHTTPServer((address, 80), Pages)
        threading.Thread(target=web.serve_forever, daemon=True).start()
    secure = http.server.ThreadingHTTPServer(("11.0.0.10", 443), Pages)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(os.environ["TEST_CERTIFICATE"], os.environ["TEST_KEY"])
    secure.socket = context.wrap_socket(secure.socket, server_side=True)
    threading.Thread(target=secure.serve_forever, daemon=True).start()
    threading.Thread(target=echo, daemon=True).start()
    threading.Thread(target=resolve, daemon=True).start()
    Path(sys.argv[1]).write_text("ready")
    threading.Event().wait()


main()
