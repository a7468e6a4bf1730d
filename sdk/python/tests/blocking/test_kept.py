# Made from tests/asynchronous/test_kept.py by mirror.py; change that one.
"""What a server keeps beside sandboxes: snapshots, secrets, keys, tenants, webhooks, and its records."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from belljar import Belljar, Sandbox, errors


def test_files_are_kept_and_each_sandbox_made_from_them_is_its_own(client: Belljar) -> None:
    files = {"/workspace/work.txt": "kept"}
    with client.sandboxes.create(limits={"memory": "128M"}, files=files) as first:
        snapshot = first.snapshot(name="morning", labels={"day": "one"})
        assert snapshot.sandbox_id == first.id
        assert snapshot.digest.startswith("sha256:")
        first.files.write("/workspace/work.txt", "changed")
        more = {"/workspace/more.txt": "more"}
        with client.snapshots.restore("morning", files=more) as second:
            with client.snapshots.restore(snapshot.id) as third:
                third.files.write("/workspace/work.txt", "of the third")
                assert (second.run("cat work.txt more.txt")).stdout == "keptmore"
                assert second.info.limits.memory == 128 << 20
            assert client.snapshots.get("morning") == snapshot
            assert client.snapshots.list(labels={"day": "one"}, sandbox=first.id) == [snapshot]
            assert client.snapshots.list(labels={"day": "two"}) == []
            part = client.snapshots.create(first.id, paths=["/home/user"])
            assert list(part.paths) == ["/home/user"]
            client.snapshots.remove(part.id)
            client.snapshots.remove("morning")
            with pytest.raises(errors.SnapshotNotFound):
                client.snapshots.restore("morning")
            assert (second.run("cat work.txt")).stdout == "kept"


def test_what_is_restored_runs_under_the_policy_of_its_snapshot(client: Belljar) -> None:
    policy = "rules: [{name: no-id, condition: {field: command, operator: contains, value: id}, action: deny}]\n"
    with client.sandboxes.create(policy=policy) as first:
        snapshot = first.snapshot()
        assert snapshot.policy == first.info.policy is not None
        with client.snapshots.restore(snapshot.id) as second:
            with pytest.raises(errors.PolicyDenied):
                second.run("id")
            assert (second.run("echo yes")).stdout == "yes\n"
        client.snapshots.remove(snapshot.id)


def test_secrets_go_in_and_only_their_names_come_out(client: Belljar) -> None:
    kept = client.secrets.set("token", "a-value-of-the-host")
    again = client.secrets.set("token", "another-value")
    assert again.created_at == kept.created_at
    listed = client.secrets.list()
    assert [secret.name for secret in listed] == ["token"]
    assert "value" not in repr([kept, again, listed])
    client.secrets.remove("token")
    assert client.secrets.list() == []
    with pytest.raises(errors.SecretNotFound):
        client.secrets.remove("token")


def test_a_key_is_its_tenants_and_none_after_it_was_revoked(own_state: Path, binary: str) -> None:
    command = [binary, "--state-dir", str(own_state), "serve", "--listen", "127.0.0.1:0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout is not None
        addresses = json.loads(server.stdout.readline())["addresses"]
        url = next(address for address in addresses if address.startswith("http"))
        with Belljar(f"unix:{own_state}/server.sock") as operator:
            assert (operator.caller()).role == "admin"
            made = operator.tenants.create("blue", quotas={"sandboxes": 1})
            assert (made.quotas.sandboxes, made.quotas.memory) == (1, None)
            with pytest.raises(errors.InvalidLimit):
                operator.tenants.set_quotas("blue", {"cats": 1})
            key = operator.keys.create("agent", tenant="blue", expires_in=3600)
            assert key.secret
            assert key.secret not in repr(key)
            assert [found.id for found in operator.keys.list(tenant="blue")] == [key.id]
            with Belljar(url, api_key=key.secret) as blue:
                assert (blue.caller()).tenant == "blue"
                with pytest.raises(errors.PermissionDenied):
                    blue.tenants.list()
                with blue.sandboxes.create() as only:
                    with pytest.raises(errors.QuotaExceeded):
                        blue.sandboxes.create()
                    assert (operator.tenants.get("blue")).usage.sandboxes == 1
                    token = only.issue_token(expires_in=60)
                    assert token.expires_at
                    with Belljar(url, api_key=token.token) as visitor:
                        inside = visitor.sandboxes.get(only.id)
                        assert (inside.run("echo in")).stdout == "in\n"
                        with pytest.raises(errors.PermissionDenied):
                            visitor.sandboxes.create()
                operator.policies.put("theirs", {"name": "theirs", "version": "1.0"}, tenant="blue")
                assert (blue.policies.get("theirs")).tenant == "blue"
                with pytest.raises(errors.PolicyNotFound):
                    operator.policies.get("theirs")
                operator.policies.remove("theirs", tenant="blue")
                assert (operator.tenants.set_quotas("blue", {"cpus": 1.5})).quotas.cpus == 1.5
                assert (operator.keys.revoke(key.id)).revoked_at
                with pytest.raises(errors.Unauthenticated):
                    blue.caller()
            operator.tenants.remove("blue")
            assert "blue" not in [tenant.name for tenant in operator.tenants.list()]
            operator.stop_server()
        assert server.wait(100) == 0
    finally:
        server.terminate()
        server.wait(60)


def test_webhooks_are_kept_and_removed(client: Belljar) -> None:
    made = client.webhooks.create("http://127.0.0.1:9/hook", secret="signs what is sent", kinds=["sandbox_failed"])
    assert list(made.kinds) == ["sandbox_failed"]
    assert made.id in [webhook.id for webhook in client.webhooks.list()]
    client.webhooks.remove(made.id)
    assert made.id not in [webhook.id for webhook in client.webhooks.list()]


def test_what_was_done_is_on_record_as_it_is_done_too(client: Belljar, sandbox: Sandbox) -> None:
    sandbox.run("true")
    beginning = datetime.fromtimestamp(0, timezone.utc)
    records = [record for record in client.audit(sandbox=sandbox.id, since=beginning)]
    assert len(records) >= 2
    assert all(record.sandbox_id == sandbox.id for record in records)
    assert len([record for record in client.audit(sandbox=sandbox.id, last=1)]) == 1
    followed = []
    for record in client.audit(sandbox=sandbox.id, follow=True):
        followed.append(record)
        if len(followed) == len(records):
            sandbox.run("true")
        if len(followed) > len(records):
            break
    assert followed[: len(records)] == records


def test_the_server_tells_of_backends_leaks_rules_and_what_it_learned(client: Belljar) -> None:
    (native,) = client.probe("native")
    assert native.backend == "native"
    assert isinstance(client.find_leaks(), list)
    assert {"locked", "packages"} <= {profile.name for profile in client.profiles()}
    assert [step for step in client.fetch_template("host")] == []
    assert client.approvals() == []
    with pytest.raises(errors.BelljarError):
        client.answer("nothing", "once")
    with client.sandboxes.create(record_policy=True) as sandbox:
        assert (sandbox.explain()).chosen_backend == sandbox.info.backend
        sandbox.run(["echo", "learned"])
        learned = client.policies.learn(sandbox.id)
        assert "name:" in learned.document


def test_a_sandbox_that_was_there_survives_a_refused_offer(client: Belljar) -> None:
    with client.sandboxes.create(name="there-before") as sandbox:
        with pytest.raises(errors.BelljarError):
            client.sandboxes.get_or_create("there-before", secrets={"token": "value"}, tools={"no such": print})
        assert (sandbox.refresh()).state == "ready"
