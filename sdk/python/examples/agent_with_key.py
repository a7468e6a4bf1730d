"""An agent in a sandbox that asks its model over HTTP, without the key: this process adds it to the requests.

The agent is any program that knows the address of a model. Nothing else can be reached, and what could leak the key
does not have it. The model is made up and served here, so that the example needs no network.
"""

from __future__ import annotations

import fcntl
import json
import socket
import struct
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from belljar import Belljar, Connection, Request, RequestVerdict, Verdict

KEY = "a key that stays on the host"

AGENT = """
import json, subprocess, sys, urllib.request

messages = [{"role": "user", "content": "How many lines has /workspace/notes.txt?"}]
while True:
    body = json.dumps({"model": "made-up", "messages": messages}).encode()
    answer = json.load(urllib.request.urlopen(sys.argv[1] + "/v1/chat/completions", body))
    message = answer["choices"][0]["message"]
    messages.append(message)
    if not message.get("tool_calls"):
        print(message["content"])
        break
    for call in message["tool_calls"]:
        line = json.loads(call["function"]["arguments"])["line"]
        done = subprocess.run(line, shell=True, capture_output=True, text=True)
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": done.stdout})
"""


class Model(BaseHTTPRequestHandler):
    """Stands in for a model: wants the key, asks for one command, then tells what it said."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        known = self.headers["authorization"] == f"Bearer {KEY}"
        told = body["messages"][-1]
        if told["role"] == "user":
            function = {"name": "shell", "arguments": json.dumps({"line": "wc -l < /workspace/notes.txt"})}
            message = {"role": "assistant", "tool_calls": [{"id": "1", "function": function}]}
        else:
            message = {"role": "assistant", "content": f"It has {told['content'].strip()} lines."}
        self.send_response(200 if known else 401)
        self.end_headers()
        self.wfile.write(json.dumps({"choices": [{"message": message}]}).encode())

    def log_message(self, *_: object) -> None:
        pass


def own_address() -> str:
    """An address of this machine: loopback would be the sandbox's own."""
    for _, name in socket.if_nameindex():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked, suppress(OSError):
            told = fcntl.ioctl(asked, 0x8915, struct.pack("256s", name.encode()))  # SIOCGIFADDR
            address = socket.inet_ntoa(told[20:24])
            if not address.startswith("127."):
                return address
    raise SystemExit("this machine has no address but loopback")


model = ThreadingHTTPServer((own_address(), 0), Model)
threading.Thread(target=model.serve_forever, daemon=True).start()
address, port = str(model.server_address[0]), model.server_port


def decide(connection: Connection) -> Verdict:
    """Only the model, and only as HTTP."""
    there = (connection.destination.ip, connection.destination.port) == (address, port)
    return connection.accept_http() if there and not connection.is_dns else connection.deny("not the model")


def handle(request: Request) -> RequestVerdict:
    """Every request to the model gets the key on its way out."""
    return request.accept({"authorization": f"Bearer {KEY}"})


with Belljar() as client:
    files = {"/workspace/agent.py": AGENT, "/workspace/notes.txt": "one\ntwo\nthree\n"}
    # The model's address is not a public one here, and so it is named.
    with client.sandboxes.create(
        files=files, cidrs=[f"{address}/32"], on_connection=decide, on_request=handle
    ) as sandbox:
        print(sandbox.run(["python3", "agent.py", f"http://{address}:{port}"], check=True).stdout)
        print(sandbox.run("env; cat /proc/*/environ 2>/dev/null").stdout.count(KEY), "traces of the key")
model.shutdown()
