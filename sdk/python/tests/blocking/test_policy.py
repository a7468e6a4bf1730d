# Made from tests/asynchronous/test_policy.py by mirror.py; change that one.
"""Sandboxes under policies."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest

from belljar import Belljar, errors

TEXT = """
name: careful
version: "1.0"
defaults: {action: allow, max_memory_mb: 128}
rules:
  - name: no-curl
    condition: {field: command, operator: contains, value: curl}
    action: deny
    message: curl is not for this sandbox
    priority: 10
"""
DICTIONARY = {
    "name": "careful",
    "version": "1.0",
    "defaults": {"action": "allow", "max_memory_mb": 128},
    "rules": [
        {
            "name": "no-curl",
            "condition": {"field": "command", "operator": "contains", "value": "curl"},
            "action": "deny",
            "message": "curl is not for this sandbox",
            "priority": 10,
        }
    ],
}


def test_every_form_of_a_document_holds(client: Belljar, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text(TEXT)
    name = f"p{uuid.uuid4().hex[:10]}"
    kept = client.policies.put(name, DICTIONARY)
    for policy in (TEXT, DICTIONARY, json.dumps(DICTIONARY), tmp_path / "policy.yaml", name, f"{name}@{kept.version}"):
        with client.sandboxes.create(policy=policy) as sandbox:
            assert sandbox.info.limits.memory == 128 << 20
            assert sandbox.info.policy is not None
            assert (sandbox.run("echo fine")).stdout == "fine\n"
            with pytest.raises(errors.PolicyDenied) as caught:
                sandbox.run("curl http://example.com")
            assert caught.value.rule == "no-curl"
            assert caught.value.decision is not None
            assert caught.value.decision.verdict == "deny"
            assert caught.value.decision.message == "curl is not for this sandbox"
            assert caught.value.decision.digest == sandbox.info.policy.digest


def test_more_than_the_policy_allows_is_refused_and_less_is_not(client: Belljar) -> None:
    with pytest.raises(errors.PolicyDenied):
        client.sandboxes.create(policy=TEXT, limits={"memory": "1G"})
    with client.sandboxes.create(policy=TEXT, limits={"memory": "64M"}) as sandbox:
        assert sandbox.info.limits.memory == 64 << 20


def test_policies_are_kept_in_versions(client: Belljar) -> None:
    name = f"p{uuid.uuid4().hex[:10]}"
    first = client.policies.put(name, TEXT)
    assert (client.policies.put(name, TEXT)).version == first.version
    second = client.policies.put(name, TEXT.replace("128", "256"))
    assert second.version > first.version
    assert {policy.version for policy in client.policies.list(name)} == {first.version, second.version}
    assert "256" in (client.policies.get(name)).effective
    assert "128" in (client.policies.get(f"{name}@{first.version}")).effective
    client.policies.remove(name)
    with pytest.raises(errors.BelljarError):
        client.policies.get(name)


def test_a_document_that_builds_on_another_is_put_together(client: Belljar, tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(TEXT)
    (tmp_path / "more.yaml").write_text("name: more\nversion: '1.0'\nextends: [base.yaml]\n")
    with client.sandboxes.create(policy=str(tmp_path / "more.yaml")) as sandbox:
        with pytest.raises(errors.PolicyDenied):
            sandbox.run("curl x")
    with pytest.raises(errors.InvalidPolicy):
        client.sandboxes.create(policy=tmp_path / "absent.yaml")
    with pytest.raises(errors.InvalidPolicy):
        client.sandboxes.create(policy="name: [\n")


def test_rules_see_the_context_of_a_command(client: Belljar) -> None:
    policy = {
        "name": "by-context",
        "version": "1.0",
        "defaults": {"action": "deny"},
        "rules": [
            {"name": "safe", "condition": {"field": "context.risk", "operator": "lt", "value": 5}, "action": "allow"}
        ],
    }
    with client.sandboxes.create(policy=policy) as sandbox:
        assert (sandbox.run("echo fine", context={"risk": 1})).ok
        with pytest.raises(errors.PolicyDenied):
            sandbox.run("echo fine", context={"risk": 9})
        with pytest.raises(errors.PolicyDenied):
            sandbox.run("echo fine")


def test_what_a_sandbox_did_can_be_learned(client: Belljar) -> None:
    with client.sandboxes.create(record_policy=True) as sandbox:
        sandbox.run(["uname", "-s"], check=True)
        document = (client.policies.learn(sandbox.id)).document
    assert "uname" in document
