"""A provider for the Agent Governance Toolkit (`pip install agt-sandbox`): its interface, with Belljar behind it."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import agent_sandbox

from belljar import providers


class BelljarSandboxProvider(agent_sandbox.SandboxProvider):  # type: ignore[misc]
    """Wherever the toolkit takes a provider. Takes the toolkit's own policy documents."""

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        ca: str | os.PathLike[str] | bytes | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        binary: str | os.PathLike[str] | None = None,
        template: str | None = None,
    ) -> None:
        self._provider = providers.SandboxProvider(
            url, api_key=api_key, ca=ca, state_dir=state_dir, binary=binary, template=template
        )

    def close(self) -> None:
        self._provider.close()

    def is_available(self) -> bool:
        return self._provider.is_available()

    def create_session(self, agent_id: str, policy: Any = None, config: Any = None) -> Any:
        return _session(self._provider.create_session(agent_id, policy, _config(config)))

    def execute_code(self, agent_id: str, session_id: str, code: str, *, context: dict[str, Any] | None = None) -> Any:
        return _execution(self._provider.execute_code(agent_id, session_id, code, context=context))

    def destroy_session(self, agent_id: str, session_id: str) -> None:
        self._provider.destroy_session(agent_id, session_id)

    def run(self, agent_id: str, command: list[str], config: Any = None, *, session_id: str | None = None) -> Any:
        return _result(self._provider.run(agent_id, command, _config(config), session_id=session_id))

    def get_session_status(self, agent_id: str, session_id: str) -> Any:
        return agent_sandbox.SessionStatus(self._provider.get_session_status(agent_id, session_id).value)

    def get_execution_status(self, agent_id: str, session_id: str, execution_id: str) -> Any:
        return _execution(self._provider.get_execution_status(agent_id, session_id, execution_id))

    def cancel_execution(self, agent_id: str, session_id: str, execution_id: str) -> bool:
        return self._provider.cancel_execution(agent_id, session_id, execution_id)

    # Not in the toolkit's interface, but its Docker provider has them.

    def save_state(self, agent_id: str, session_id: str, name: str) -> providers.Checkpoint:
        return self._provider.save_state(agent_id, session_id, name)

    def restore_state(self, agent_id: str, session_id: str, name: str, config: Any = None) -> None:
        self._provider.restore_state(agent_id, session_id, name, _config(config))

    def list_checkpoints(self, agent_id: str) -> list[providers.Checkpoint]:
        return self._provider.list_checkpoints(agent_id)

    def delete_checkpoint(self, agent_id: str, name: str) -> None:
        self._provider.delete_checkpoint(agent_id, name)


def _config(config: Any) -> providers.SandboxConfig | None:
    if config is None:
        return None
    if getattr(config, "ring", None) is not None:
        raise ValueError("rings are not enforced here; leave `ring` away and give a policy")
    names = [field.name for field in dataclasses.fields(providers.SandboxConfig)]
    return providers.SandboxConfig(**{name: getattr(config, name) for name in names if hasattr(config, name)})


def _session(handle: providers.SessionHandle) -> Any:
    status = agent_sandbox.SessionStatus(handle.status.value)
    return agent_sandbox.SessionHandle(agent_id=handle.agent_id, session_id=handle.session_id, status=status)


def _result(result: providers.SandboxResult) -> Any:
    return agent_sandbox.SandboxResult(**dataclasses.asdict(result))


def _execution(handle: providers.ExecutionHandle) -> Any:
    return agent_sandbox.ExecutionHandle(
        execution_id=handle.execution_id,
        agent_id=handle.agent_id,
        session_id=handle.session_id,
        status=agent_sandbox.ExecutionStatus(handle.status.value),
        result=None if handle.result is None else _result(handle.result),
    )
