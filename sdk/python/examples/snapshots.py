"""Prepare once, then start from there as often as wanted: each sandbox is its own."""

from __future__ import annotations

from belljar import Belljar

with Belljar() as client:
    with client.sandboxes.create() as prepared:
        prepared.run("mkdir project && echo 'the state of things' > project/state.txt", check=True)
        snapshot = prepared.snapshot(labels={"example": "snapshots"})
    for attempt in ("one", "two"):
        with client.snapshots.restore(snapshot.id) as fork:
            fork.run(f"echo attempt {attempt} >> project/state.txt", check=True)
            print(fork.files.read_text("/workspace/project/state.txt"), end="")
    client.snapshots.remove(snapshot.id)
    print(len(client.snapshots.list(labels={"example": "snapshots"})), "snapshots left")
