"""A server inside, reached from here; the sandbox has no network."""

from __future__ import annotations

import urllib.request

from belljar import Belljar

with Belljar() as client, client.sandboxes.create(files={"/workspace/page.txt": "from inside"}) as sandbox:
    server = sandbox.start("exec python3 -u -m http.server --bind 127.0.0.1 8000")
    for output in server:
        print(output.text.split(" port")[0])
        break
    with sandbox.forward(8000) as forward:
        host, port = forward.address
        print(urllib.request.urlopen(f"http://{host}:{port}/page.txt", timeout=60).read().decode())
