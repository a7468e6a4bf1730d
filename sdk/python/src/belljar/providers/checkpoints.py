"""Checkpoints of sessions: the kept `/workspace` of an agent, by name, and put back into a session.

A session that goes back keeps its id, its policy and its limits; only the files change, and what ran has ended. The
files are staged beside the present ones first, so that nothing is lost where putting them back is refused.
"""

from __future__ import annotations

import uuid

from belljar._generated.codes import ProcessEnded
from belljar._kept import Snapshot
from belljar._sync.client import Belljar
from belljar._sync.sandbox import Sandbox
from belljar.providers.types import Checkpoint, NoCheckpoint

# What an agent calls it.
NAME_LABEL = "belljar.checkpoint"
WORKSPACE = "/workspace"


def save(client: Belljar, sandbox: Sandbox, labels: dict[str, str], name: str) -> Snapshot:
    """Keeps the workspace under a name, in the place of an earlier one."""
    earlier = client.snapshots.list(labels={**labels, NAME_LABEL: name})
    made = sandbox.snapshot(labels={**labels, NAME_LABEL: name}, paths=[WORKSPACE])
    for snapshot in earlier:
        client.snapshots.remove(snapshot.id)
    return made


def find(client: Belljar, labels: dict[str, str], name: str) -> Snapshot:
    found = client.snapshots.list(labels={**labels, NAME_LABEL: name})
    if not found:
        raise NoCheckpoint(f"there is no checkpoint `{name}`", remedy="`list_checkpoints` tells which there are")
    return found[-1]


def restore(client: Belljar, sandbox: Sandbox, snapshot: Snapshot) -> None:
    """Ends what runs in a sandbox and gives it the kept workspace."""
    for process in client.processes.list(sandbox=sandbox.id, statuses=["starting", "running"]):
        try:
            process.cancel()
        except ProcessEnded:
            continue
    stage = f"{WORKSPACE}/.restored-{uuid.uuid4().hex}"
    # Only to read from: it reaches nothing and is gone at the end.
    with client.snapshots.restore(snapshot.id, network="none") as source:
        sandbox.files.make_directory(stage)
        sandbox.files.unpack(stage, source.files.pack(WORKSPACE))
    for entry in sandbox.files.list(WORKSPACE):
        if f"{WORKSPACE}/{entry.path}" != stage:
            sandbox.files.remove(f"{WORKSPACE}/{entry.path}", recursive=True)
    for entry in sandbox.files.list(stage):
        sandbox.files.move(f"{stage}/{entry.path}", f"{WORKSPACE}/{entry.path}")
    sandbox.files.remove(stage)


def checkpoint(agent_id: str, snapshot: Snapshot) -> Checkpoint:
    created = snapshot.created_at.isoformat() if snapshot.created_at else ""
    return Checkpoint(agent_id, snapshot.labels.get(NAME_LABEL, ""), snapshot.id, created)
