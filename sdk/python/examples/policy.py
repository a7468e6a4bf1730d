"""A policy decides what a sandbox may do; a refusal says which rule it was, and why."""

from __future__ import annotations

from belljar import Belljar, PolicyDenied

POLICY = {
    "name": "careful",
    "version": "1.0",
    "defaults": {"action": "allow", "max_memory_mb": 256},
    "rules": [
        {
            "name": "no-removal",
            "condition": {"field": "command", "operator": "contains", "value": "rm -rf"},
            "action": "deny",
            "message": "move it away instead",
        }
    ],
}

with Belljar() as client:
    kept = client.policies.put("careful-example", POLICY)
    with client.sandboxes.create(policy=f"careful-example@{kept.version}") as sandbox:
        print(sandbox.run("echo allowed").stdout, end="")
        try:
            sandbox.run("rm -rf /workspace")
        except PolicyDenied as refusal:
            print(refusal.rule, "-", refusal.decision.message if refusal.decision else "")
    client.policies.remove("careful-example")
