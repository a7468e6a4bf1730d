# Made from tests/asynchronous/test_sandboxes.py by mirror.py; change that one.
"""Making, finding, keeping and ending sandboxes."""

from __future__ import annotations

import os
import shutil
import uuid
from pathlib import Path

import pytest

from belljar import Belljar, Limits, Sandbox, Workspace, errors


def test_a_sandbox_lives_as_long_as_its_block(client: Belljar) -> None:
    with client.sandboxes.create(labels={"for": "block"}, metadata={"a": "b"}) as sandbox:
        assert sandbox.info.state == "ready"
        assert sandbox.info.labels == {"for": "block"}
        assert sandbox.info.metadata == {"a": "b"}
        assert sandbox.info.isolation.network_mode == "none"
        assert sandbox.info.created_at is not None
    assert (client.sandboxes.get(sandbox.id)).info.state == "destroyed"
    with pytest.raises((errors.SandboxGone, errors.SandboxNotReady, errors.SandboxNotFound)):
        sandbox.run("true")
    sandbox.destroy()


def test_names_are_found_again_and_belong_to_one(client: Belljar) -> None:
    name = f"n{uuid.uuid4().hex[:12]}"
    with client.sandboxes.get_or_create(name) as sandbox:
        assert sandbox.name == name
        assert (client.sandboxes.get_or_create(name)).id == sandbox.id
        assert (client.sandboxes.get(name)).id == sandbox.id
        with pytest.raises(errors.SandboxExists):
            client.sandboxes.create(name=name)


def test_lists_are_narrowed_by_labels_states_and_names(client: Belljar) -> None:
    mark = uuid.uuid4().hex
    first = client.sandboxes.create(labels={"mark": mark, "n": "1"})
    second = client.sandboxes.create(labels={"mark": mark, "n": "2"})
    assert [found.id for found in client.sandboxes.list(labels={"mark": mark})] == [first.id, second.id]
    assert [found.id for found in client.sandboxes.list(labels={"mark": mark, "n": "2"})] == [second.id]
    first.destroy()
    assert [found.id for found in client.sandboxes.list(labels={"mark": mark})] == [second.id]
    ended = client.sandboxes.list(labels={"mark": mark}, states=["destroyed"])
    assert [found.id for found in ended] == [first.id]
    second.destroy()
    with pytest.raises(errors.InvalidArgument, match="states"):
        client.sandboxes.list(states=["asleep"])


def test_what_is_masked_is_not_seen(client: Belljar, tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    for name in ("secrets/key", ".env"):
        (tmp_path / name).write_text("only for the host")
    (tmp_path / "open").write_text("for everybody")
    see = "cat /data/.env /data/secrets/key /data/open"
    mounts = [f"{tmp_path}:/data:rw"]
    with client.sandboxes.create(mounts=mounts) as sandbox:
        assert (sandbox.run(see, user="root")).stdout == "only for the host" * 2 + "for everybody"
    with client.sandboxes.create(mounts=mounts, masks=["/data/.env", "/data/secrets"]) as sandbox:
        assert (sandbox.run(see, user="root")).stdout == "for everybody"
        assert (sandbox.run("rm -f /data/.env", user="root")).exit_code != 0
        assert sandbox.files.read_text("/data/.env") == ""
    assert (tmp_path / ".env").read_text() == "only for the host"
    with pytest.raises(errors.MountSourceUnusable, match="absent"):
        client.sandboxes.create(mounts=mounts, masks=["/data/absent"])


def test_limits_environment_files_and_user(client: Belljar) -> None:
    with client.sandboxes.create(
        limits={"memory": "64M", "cpus": 0.5, "pids": 50, "disk": "32MiB"},
        env={"GREETING": "hello"},
        files={"/workspace/a.txt": "text", "/workspace/b.bin": b"\x00\xff"},
        cwd="/tmp",
        ensure=["echo once >> /workspace/ensured"],
    ) as sandbox:
        assert sandbox.info.limits == Limits(memory=64 << 20, cpus=0.5, pids=50, disk=32 << 20)
        result = sandbox.run("echo $GREETING; pwd; cat /workspace/a.txt /workspace/ensured")
        assert result.stdout == "hello\n/tmp\ntextonce\n"
        assert sandbox.files.read("/workspace/b.bin") == b"\x00\xff"
        result = sandbox.run_python("x = bytearray(200 << 20)")
        assert result.reason == "oom"
        assert "oom" in result.limits_hit
        with pytest.raises(errors.CommandOutOfMemory):
            result.check()


def test_what_one_was_limited_to_does_not_limit_the_next(client: Belljar) -> None:
    with client.sandboxes.create(limits=Limits(memory="32M")) as small:
        assert small.info.limits.memory == 32 << 20
    # What is prepared for a sandbox beforehand is as it was for one of the last few.
    for _ in range(4):
        with client.sandboxes.create() as sandbox:
            assert (sandbox.run_python("x = bytearray(100 << 20); print(len(x))")).ok


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("runc") is None, reason="runc needs to be there, and root")
def test_the_wall_and_what_runs_in_it_are_chosen(client: Belljar) -> None:
    with client.sandboxes.create(backend="oci", runtime="runc") as sandbox:
        assert (sandbox.info.isolation.backend, sandbox.info.isolation.runtime) == ("oci", "runc")
        assert (sandbox.run("id -u")).stdout == "1000\n"
    with pytest.raises(errors.BelljarError, match="nonesuch"):
        client.sandboxes.create(backend="oci", runtime="nonesuch")


def test_wrong_arguments_are_named(client: Belljar) -> None:
    with pytest.raises(errors.InvalidLimit, match="memory"):
        client.sandboxes.create(limits={"memory": "lots"})
    with pytest.raises(errors.InvalidLimit, match="ram"):
        client.sandboxes.create(limits={"ram": 1})
    with pytest.raises(errors.TemplateNotFound) as caught:
        client.sandboxes.create(template="no-such-template")
    assert caught.value.code == "template-not-found"
    assert caught.value.remedy
    assert caught.value.request_id
    with pytest.raises(errors.SandboxNotFound):
        client.sandboxes.get("absent")
    with pytest.raises(errors.BelljarError) as refused:
        client.sandboxes.create(network="allowlist")
    assert refused.value.code == "invalid-network-rule"


def test_pause_resume_and_extend(sandbox: Sandbox) -> None:
    assert (sandbox.pause()).state == "paused"
    assert (sandbox.refresh()).state == "paused"
    assert (sandbox.resume()).state == "ready"
    before = sandbox.info.expires_at
    after = (sandbox.extend(idle_timeout=3600, lease=7200)).expires_at
    assert before is not None
    assert after is not None
    assert after > before
    assert (sandbox.info.idle_timeout, sandbox.info.lease) == (3600, 7200)


def test_events_tell_what_happened(client: Belljar) -> None:
    with client.sandboxes.create() as sandbox:
        sandbox.run("true")
    kinds = []
    for event in client.sandboxes.events(since=0, sandbox=sandbox.id):
        kinds.append(event.kind)
        if event.kind == "sandbox_destroyed":
            break
    assert kinds[0] == "sandbox_created"
    assert {"sandbox_ready", "process_started", "process_ended"} <= set(kinds)
    told = [event.kind for event in client.sandboxes.events(since=0, sandbox=sandbox.id, follow=False)]
    assert told == kinds


def test_explain_makes_nothing(client: Belljar) -> None:
    count = (client.server()).sandboxes
    explanation = client.sandboxes.explain(limits={"memory": "100M"})
    assert explanation.isolation_class == "namespace"
    assert any(rule.subject == "memory" and "100 MiB" in rule.rule for rule in explanation.rules)
    assert (client.server()).sandboxes == count


def test_a_workspace_keeps_changes_in_a_layer_until_they_are_applied(client: Belljar, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "old.txt").write_text("old")
    with client.sandboxes.create(workspace=Workspace(str(tmp_path), "overlay")) as sandbox:
        assert (sandbox.run("cat old.txt; echo new > new.txt", check=True)).stdout == "old"
        assert [(change.change, change.path) for change in sandbox.diff()] == [("added", "new.txt")]
        assert not (tmp_path / "new.txt").exists()
        assert len(sandbox.apply()) == 1
        assert (tmp_path / "new.txt").read_text() == "new\n"
        sandbox.run("rm new.txt", check=True)
        sandbox.discard()
        assert sandbox.diff() == []


def test_templates_and_the_server_are_told(client: Belljar) -> None:
    assert "host" in [template.name for template in client.templates() if template.available]
    assert (client.server()).automatic
