"""The provider interface: ours, and that of the installed toolkit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar import errors
from belljar.providers import (
    ExecutionDenied,
    ExecutionStatus,
    NoCheckpoint,
    NoSession,
    SandboxConfig,
    SandboxProvider,
    SessionStatus,
)

POLICY = {
    "name": "no-sockets",
    "version": "1.0",
    "defaults": {"action": "allow", "max_memory_mb": 128},
    "rules": [
        {
            "name": "no-socket",
            "condition": {"field": "code", "operator": "contains", "value": "import socket"},
            "action": "deny",
            "message": "sockets are not for agents",
            "priority": 10,
        }
    ],
}


@pytest.fixture(scope="module")
def provider(shared_state: Path) -> Iterator[SandboxProvider]:
    provider = SandboxProvider(state_dir=shared_state)
    yield provider
    provider.close()


def test_a_session_from_its_making_to_its_end(provider: SandboxProvider) -> None:
    assert provider.is_available()
    session = provider.create_session("agent-1")
    assert session.status is SessionStatus.READY
    assert provider.get_session_status("agent-1", session.session_id) is SessionStatus.READY
    handle = provider.execute_code("agent-1", session.session_id, "print(6 * 7)")
    assert handle.status is ExecutionStatus.COMPLETED
    assert handle.result is not None
    assert (handle.result.success, handle.result.stdout) == (True, "42\n")
    failed = provider.execute_code("agent-1", session.session_id, "raise SystemExit(3)")
    assert failed.status is ExecutionStatus.FAILED
    assert failed.result is not None
    assert failed.result.exit_code == 3
    assert provider.get_execution_status("agent-1", session.session_id, handle.execution_id).result == handle.result
    assert provider.run("agent-1", ["echo", "raw"], session_id=session.session_id).stdout == "raw\n"
    assert provider.run("agent-1", ["echo", "newest"]).stdout == "newest\n"
    provider.destroy_session("agent-1", session.session_id)
    provider.destroy_session("agent-1", session.session_id)
    assert provider.get_session_status("agent-1", session.session_id) is SessionStatus.DESTROYED
    with pytest.raises(NoSession):
        provider.execute_code("agent-1", session.session_id, "print(1)")
    with pytest.raises(RuntimeError):
        provider.run("agent-1", ["true"])


def test_sessions_of_other_agents_do_not_exist(provider: SandboxProvider) -> None:
    session = provider.create_session("agent-1")
    with pytest.raises(NoSession):
        provider.execute_code("agent-2", session.session_id, "print(1)")
    assert provider.get_session_status("agent-2", session.session_id) is SessionStatus.DESTROYED
    provider.destroy_session("agent-2", session.session_id)
    assert provider.get_session_status("agent-1", session.session_id) is SessionStatus.READY
    provider.destroy_session("agent-1", session.session_id)
    with pytest.raises(errors.InvalidName):
        provider.create_session("agent/1")


def test_a_policy_governs_a_session(provider: SandboxProvider) -> None:
    session = provider.create_session("agent-1", policy=POLICY)
    result = provider.execute_code("agent-1", session.session_id, "print(1)").result
    assert result is not None
    assert result.success
    with pytest.raises(PermissionError) as caught:
        provider.execute_code("agent-1", session.session_id, "import socket")
    assert isinstance(caught.value, ExecutionDenied)
    assert caught.value.rule == "no-socket"
    assert "sockets are not for agents" in str(caught.value)
    provider.destroy_session("agent-1", session.session_id)


def test_limits_time_and_files_of_a_configuration(provider: SandboxProvider, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "data.txt").write_text("input")
    config = SandboxConfig(timeout_seconds=0.5, memory_mb=64, env_vars={"A": "b"}, input_dir=str(tmp_path))
    session = provider.create_session("agent-1", config=config)
    result = provider.execute_code("agent-1", session.session_id, "import time; time.sleep(20)").result
    assert result is not None
    assert (result.killed, result.success, result.exit_code) == (True, False, 124)
    assert "timeout" in result.kill_reason
    code = "import os; print(os.environ['A'], open('/input/data.txt').read())"
    result = provider.execute_code("agent-1", session.session_id, code).result
    assert result is not None
    assert result.stdout == "b input\n", result.stderr
    with pytest.raises(errors.NotEnforceable):
        provider.create_session("agent-1", config=SandboxConfig(runtime="paper"))
    provider.destroy_session("agent-1", session.session_id)


def test_an_execution_is_seen_and_cancelled_from_elsewhere(provider: SandboxProvider, shared_state: Path) -> None:
    session = provider.create_session("agent-1")
    ended: list[ExecutionStatus] = []

    def execute() -> None:
        code = "print('begun', flush=True); import time; time.sleep(50)"
        ended.append(provider.execute_code("agent-1", session.session_id, code).status)

    thread = threading.Thread(target=execute)
    thread.start()
    other = SandboxProvider(state_dir=shared_state)
    while not (executions := other.list_executions("agent-1", session.session_id)):
        assert thread.is_alive()
    assert other.get_session_status("agent-1", session.session_id) is SessionStatus.EXECUTING
    execution = executions[0].execution_id
    assert other.cancel_execution("agent-1", session.session_id, execution)
    thread.join(30)
    assert ended == [ExecutionStatus.CANCELLED]
    assert not other.cancel_execution("agent-1", session.session_id, execution)
    other.destroy_session("agent-1", session.session_id)
    other.close()


def test_the_same_for_asyncio(provider: SandboxProvider) -> None:
    async def main() -> None:
        session = await provider.create_session_async("agent-1")
        handle = await provider.execute_code_async("agent-1", session.session_id, "print(1)")
        assert handle.result is not None
        assert handle.result.stdout == "1\n"
        assert (await provider.run_async("agent-1", ["echo", "x"], session_id=session.session_id)).stdout == "x\n"
        assert await provider.get_session_status_async("agent-1", session.session_id) is SessionStatus.READY
        again = await provider.get_execution_status_async("agent-1", session.session_id, handle.execution_id)
        assert again.result == handle.result
        assert not await provider.cancel_execution_async("agent-1", session.session_id, handle.execution_id)
        await provider.destroy_session_async("agent-1", session.session_id)

    asyncio.run(main())


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_installed_toolkit_takes_it_as_a_provider(shared_state: Path) -> None:
    agent_sandbox = pytest.importorskip("agent_sandbox", reason="agt-sandbox is not installed")
    from agent_os.policies.schema import PolicyDocument

    from belljar.providers.agt import BelljarSandboxProvider

    provider = BelljarSandboxProvider(state_dir=shared_state)
    assert isinstance(provider, agent_sandbox.SandboxProvider)
    policy = PolicyDocument.model_validate(POLICY)
    session = provider.create_session("agent-1", policy, agent_sandbox.SandboxConfig(env_vars={"A": "b"}))
    assert isinstance(session, agent_sandbox.SessionHandle)
    assert session.status is agent_sandbox.SessionStatus.READY
    handle = asyncio.run(
        provider.execute_code_async("agent-1", session.session_id, "import os; print(os.environ['A'])")
    )
    assert isinstance(handle.result, agent_sandbox.SandboxResult)
    assert (handle.status, handle.result.stdout) == (agent_sandbox.ExecutionStatus.COMPLETED, "b\n")
    with pytest.raises(PermissionError, match="no-socket"):
        provider.execute_code("agent-1", session.session_id, "import socket")
    assert provider.run("agent-1", ["echo", "raw"]).stdout == "raw\n"
    assert provider.get_session_status("agent-1", session.session_id) is agent_sandbox.SessionStatus.READY
    provider.destroy_session("agent-1", session.session_id)
    assert provider.get_session_status("agent-1", session.session_id) is agent_sandbox.SessionStatus.DESTROYED
    with pytest.raises(RuntimeError):
        provider.execute_code("agent-1", session.session_id, "print(1)")
    provider.close()


def test_a_session_goes_back_to_a_checkpoint_and_stays_itself(provider: SandboxProvider) -> None:
    session = provider.create_session("agent-back", POLICY)
    other = provider.create_session("agent-other")

    def execute(code: str) -> str:
        result = provider.execute_code("agent-back", session.session_id, code).result
        assert result is not None
        assert result.success, result.stderr
        return result.stdout

    write = "import os; os.makedirs('deep/er', exist_ok=True); open('deep/er/state', 'w').write('{}')"
    try:
        execute(write.format("first"))
        made = provider.save_state("agent-back", session.session_id, "good")
        assert (made.agent_id, made.name) == ("agent-back", "good")
        execute(write.format("second") + "; open('new', 'w').write('new'); os.symlink('nowhere', 'link')")
        provider.restore_state("agent-back", session.session_id, "good")
        assert execute("import os; print(sorted(os.listdir('.')), open('deep/er/state').read())") == "['deep'] first\n"
        # The same session, under the same policy.
        with pytest.raises(ExecutionDenied):
            provider.execute_code("agent-back", session.session_id, "import socket")
        # A name is the newest that was saved under it, and it is the agent's own.
        execute(write.format("third"))
        provider.save_state("agent-back", session.session_id, "good")
        assert [one.name for one in provider.list_checkpoints("agent-back")] == ["good"]
        assert provider.list_checkpoints("agent-other") == []
        with pytest.raises(NoCheckpoint):
            provider.restore_state("agent-other", other.session_id, "good")
        with pytest.raises(NoSession):
            provider.save_state("agent-other", session.session_id, "stolen")
        with pytest.raises(errors.InvalidName):
            provider.save_state("agent-back", session.session_id, "../x")
        with pytest.raises(errors.NotEnforceable):
            provider.restore_state("agent-back", session.session_id, "good", SandboxConfig(memory_mb=1))
        execute(write.format("fourth"))
        asyncio.run(provider.restore_state_async("agent-back", session.session_id, "good"))
        assert execute("print(open('deep/er/state').read())") == "third\n"
        provider.delete_checkpoint("agent-back", "good")
        with pytest.raises(RuntimeError):
            provider.delete_checkpoint("agent-back", "good")
    finally:
        provider.destroy_session("agent-back", session.session_id)
        provider.destroy_session("agent-other", other.session_id)
