"""What a server keeps beside sandboxes: snapshots, secrets, keys, tenants, webhooks, and its records."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from belljar import AsyncBelljar, AsyncSandbox, errors


async def test_files_are_kept_and_each_sandbox_made_from_them_is_its_own(client: AsyncBelljar) -> None:
    files = {"/workspace/work.txt": "kept"}
    async with await client.sandboxes.create(limits={"memory": "128M"}, files=files) as first:
        snapshot = await first.snapshot(name="morning", labels={"day": "one"})
        assert snapshot.sandbox_id == first.id
        assert snapshot.digest.startswith("sha256:")
        await first.files.write("/workspace/work.txt", "changed")
        more = {"/workspace/more.txt": "more"}
        async with await client.snapshots.restore("morning", files=more) as second:
            async with await client.snapshots.restore(snapshot.id) as third:
                await third.files.write("/workspace/work.txt", "of the third")
                assert (await second.run("cat work.txt more.txt")).stdout == "keptmore"
                assert second.info.limits.memory == 128 << 20
            assert await client.snapshots.get("morning") == snapshot
            assert await client.snapshots.list(labels={"day": "one"}, sandbox=first.id) == [snapshot]
            assert await client.snapshots.list(labels={"day": "two"}) == []
            part = await client.snapshots.create(first.id, paths=["/home/user"])
            assert list(part.paths) == ["/home/user"]
            await client.snapshots.remove(part.id)
            await client.snapshots.remove("morning")
            with pytest.raises(errors.SnapshotNotFound):
                await client.snapshots.restore("morning")
            assert (await second.run("cat work.txt")).stdout == "kept"


async def test_what_is_restored_runs_under_the_policy_of_its_snapshot(client: AsyncBelljar) -> None:
    policy = "rules: [{name: no-id, condition: {field: command, operator: contains, value: id}, action: deny}]\n"
    async with await client.sandboxes.create(policy=policy) as first:
        snapshot = await first.snapshot()
        assert snapshot.policy == first.info.policy is not None
        async with await client.snapshots.restore(snapshot.id) as second:
            with pytest.raises(errors.PolicyDenied):
                await second.run("id")
            assert (await second.run("echo yes")).stdout == "yes\n"
        await client.snapshots.remove(snapshot.id)


async def test_secrets_go_in_and_only_their_names_come_out(client: AsyncBelljar) -> None:
    kept = await client.secrets.set("token", "a-value-of-the-host")
    again = await client.secrets.set("token", "another-value")
    assert again.created_at == kept.created_at
    listed = await client.secrets.list()
    assert [secret.name for secret in listed] == ["token"]
    assert "value" not in repr([kept, again, listed])
    await client.secrets.remove("token")
    assert await client.secrets.list() == []
    with pytest.raises(errors.SecretNotFound):
        await client.secrets.remove("token")


async def test_a_key_is_its_tenants_and_none_after_it_was_revoked(own_state: Path, binary: str) -> None:
    command = [binary, "--state-dir", str(own_state), "serve", "--listen", "127.0.0.1:0", "--json"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert server.stdout is not None
        addresses = json.loads(server.stdout.readline())["addresses"]
        url = next(address for address in addresses if address.startswith("http"))
        async with AsyncBelljar(f"unix:{own_state}/server.sock") as operator:
            assert (await operator.caller()).role == "admin"
            made = await operator.tenants.create("blue", quotas={"sandboxes": 1})
            assert (made.quotas.sandboxes, made.quotas.memory) == (1, None)
            with pytest.raises(errors.InvalidLimit):
                await operator.tenants.set_quotas("blue", {"cats": 1})
            key = await operator.keys.create("agent", tenant="blue", expires_in=3600)
            assert key.secret
            assert key.secret not in repr(key)
            assert [found.id for found in await operator.keys.list(tenant="blue")] == [key.id]
            async with AsyncBelljar(url, api_key=key.secret) as blue:
                assert (await blue.caller()).tenant == "blue"
                with pytest.raises(errors.PermissionDenied):
                    await blue.tenants.list()
                async with await blue.sandboxes.create() as only:
                    with pytest.raises(errors.QuotaExceeded):
                        await blue.sandboxes.create()
                    assert (await operator.tenants.get("blue")).usage.sandboxes == 1
                    token = await only.issue_token(expires_in=60)
                    assert token.expires_at
                    async with AsyncBelljar(url, api_key=token.token) as visitor:
                        inside = await visitor.sandboxes.get(only.id)
                        assert (await inside.run("echo in")).stdout == "in\n"
                        with pytest.raises(errors.PermissionDenied):
                            await visitor.sandboxes.create()
                await operator.policies.put("theirs", {"name": "theirs", "version": "1.0"}, tenant="blue")
                assert (await blue.policies.get("theirs")).tenant == "blue"
                with pytest.raises(errors.PolicyNotFound):
                    await operator.policies.get("theirs")
                await operator.policies.remove("theirs", tenant="blue")
                assert (await operator.tenants.set_quotas("blue", {"cpus": 1.5})).quotas.cpus == 1.5
                assert (await operator.keys.revoke(key.id)).revoked_at
                with pytest.raises(errors.Unauthenticated):
                    await blue.caller()
            await operator.tenants.remove("blue")
            assert "blue" not in [tenant.name for tenant in await operator.tenants.list()]
            await operator.stop_server()
        assert server.wait(100) == 0
    finally:
        server.terminate()
        server.wait(60)


async def test_webhooks_are_kept_and_removed(client: AsyncBelljar) -> None:
    made = await client.webhooks.create(
        "http://127.0.0.1:9/hook", secret="signs what is sent", kinds=["sandbox_failed"]
    )
    assert list(made.kinds) == ["sandbox_failed"]
    assert made.id in [webhook.id for webhook in await client.webhooks.list()]
    await client.webhooks.remove(made.id)
    assert made.id not in [webhook.id for webhook in await client.webhooks.list()]


async def test_what_was_done_is_on_record_as_it_is_done_too(client: AsyncBelljar, sandbox: AsyncSandbox) -> None:
    await sandbox.run("true")
    beginning = datetime.fromtimestamp(0, timezone.utc)
    records = [record async for record in client.audit(sandbox=sandbox.id, since=beginning)]
    assert len(records) >= 2
    assert all(record.sandbox_id == sandbox.id for record in records)
    assert len([record async for record in client.audit(sandbox=sandbox.id, last=1)]) == 1
    followed = []
    async for record in client.audit(sandbox=sandbox.id, follow=True):
        followed.append(record)
        if len(followed) == len(records):
            await sandbox.run("true")
        if len(followed) > len(records):
            break
    assert followed[: len(records)] == records


async def test_the_server_tells_of_backends_leaks_rules_and_what_it_learned(client: AsyncBelljar) -> None:
    (native,) = await client.probe("native")
    assert native.backend == "native"
    assert isinstance(await client.find_leaks(), list)
    assert {"locked", "packages"} <= {profile.name for profile in await client.profiles()}
    assert [step async for step in client.fetch_template("host")] == []
    assert await client.approvals() == []
    with pytest.raises(errors.BelljarError):
        await client.answer("nothing", "once")
    async with await client.sandboxes.create(record_policy=True) as sandbox:
        assert (await sandbox.explain()).chosen_backend == sandbox.info.backend
        await sandbox.run(["echo", "learned"])
        learned = await client.policies.learn(sandbox.id)
        assert "name:" in learned.document


async def test_a_sandbox_that_was_there_survives_a_refused_offer(client: AsyncBelljar) -> None:
    async with await client.sandboxes.create(name="there-before") as sandbox:
        with pytest.raises(errors.BelljarError):
            await client.sandboxes.get_or_create("there-before", secrets={"token": "value"}, tools={"no such": print})
        assert (await sandbox.refresh()).state == "ready"
