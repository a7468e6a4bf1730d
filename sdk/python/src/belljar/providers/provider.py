"""A provider of sessions. All it knows is in the server, so any process can go on with any session."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping
from typing import Any

from belljar._failure import BelljarError
from belljar._generated.codes import InvalidName, NotEnforceable, PolicyDenied, ProcessEnded, ProcessNotFound
from belljar._generated.codes import SandboxNotFound as NotFound
from belljar._outcomes import ProcessInfo, Result
from belljar._requests import CreateOptions
from belljar._sync.client import Belljar
from belljar._sync.sandbox import Sandbox
from belljar.providers import checkpoints
from belljar.providers.types import (
    Checkpoint,
    ExecutionDenied,
    ExecutionHandle,
    ExecutionStatus,
    NoSession,
    SandboxConfig,
    SandboxResult,
    SessionHandle,
    SessionStatus,
)

# Whose session a sandbox is.
AGENT_LABEL = "belljar.agent"
AGENT_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")

SESSION_STATES = {
    "creating": SessionStatus.PROVISIONING,
    "ready": SessionStatus.READY,
    "paused": SessionStatus.READY,
    "destroying": SessionStatus.DESTROYING,
    "destroyed": SessionStatus.DESTROYED,
    "failed": SessionStatus.FAILED,
}
EXECUTION_STATES = {
    "starting": ExecutionStatus.PENDING,
    "running": ExecutionStatus.RUNNING,
    "succeeded": ExecutionStatus.COMPLETED,
    "failed": ExecutionStatus.FAILED,
    "cancelled": ExecutionStatus.CANCELLED,
    "lost": ExecutionStatus.FAILED,
}
WALLS = {"gvisor": "kernel", "runsc": "kernel", "kata": "vm", "runc": "namespace", "auto": None}


class SandboxProvider:
    """Sessions on the server of this machine, or with a URL on one elsewhere."""

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
        self._client = Belljar(url, api_key=api_key, ca=ca, state_dir=state_dir, binary=binary)
        self._template = template

    def close(self) -> None:
        """Lets go of the connection. Sessions stay."""
        self._client.close()

    def is_available(self) -> bool:
        """Whether a server answers that can make sandboxes."""
        try:
            self._client.server()
        except BelljarError:
            return False
        return True

    # --- sessions ---

    def create_session(self, agent_id: str, policy: Any = None, config: SandboxConfig | None = None) -> SessionHandle:
        """Makes a sandbox for an agent, under a policy where one is given."""
        if not AGENT_ID.fullmatch(agent_id):
            raise InvalidName(f"`{agent_id}` is no id of an agent", remedy="use letters, digits, `_`, `.` and `-`")
        options = _options(config or SandboxConfig(), governed=policy is not None)
        options["labels"] = {AGENT_LABEL: agent_id}
        options["template"] = self._template
        if policy is not None:
            options["policy"] = policy
        try:
            sandbox = self._client.sandboxes.create(**options)
        except PolicyDenied as error:
            raise _denied(error) from error
        return SessionHandle(agent_id, sandbox.id, SessionStatus.READY)

    def get_session_status(self, agent_id: str, session_id: str) -> SessionStatus:
        """`destroyed` where there is none."""
        try:
            sandbox = self._session(agent_id, session_id)
        except NoSession:
            return SessionStatus.DESTROYED
        status = SESSION_STATES[sandbox.info.state]
        if status is SessionStatus.READY and self._client.processes.list(
            sandbox=session_id, statuses=["starting", "running"], at_most=1
        ):
            return SessionStatus.EXECUTING
        return status

    def destroy_session(self, agent_id: str, session_id: str) -> None:
        """Destroys the sandbox. Destroying it again is fine."""
        try:
            self._session(agent_id, session_id).destroy()
        except NoSession:
            return

    def _session(self, agent_id: str, session_id: str) -> Sandbox:
        try:
            sandbox = self._client.sandboxes.get(session_id)
        except NotFound:
            sandbox = None
        # That of another agent does not exist for this one.
        if sandbox is None or sandbox.info.labels.get(AGENT_LABEL) != agent_id:
            raise NoSession(
                f"agent `{agent_id}` has no session `{session_id}`", remedy="call `create_session` first"
            ) from None
        return sandbox

    # --- executions ---

    def execute_code(
        self, agent_id: str, session_id: str, code: str, *, context: Mapping[str, Any] | None = None
    ) -> ExecutionHandle:
        """Runs Python code, where the policy of the session allows it. `context` is what else its rules may look at."""
        sandbox = self._live(agent_id, session_id)
        metadata = sandbox.info.metadata
        try:
            result = sandbox.run_python(code, **_commands(metadata), **_context(context))
        except PolicyDenied as error:
            raise _denied(error) from error
        return _handle(agent_id, session_id, result)

    def run(
        self,
        agent_id: str,
        command: list[str],
        config: SandboxConfig | None = None,
        *,
        session_id: str | None = None,
    ) -> SandboxResult:
        """Runs a command in a session, or in the newest session of the agent."""
        sandbox = self._newest(agent_id) if session_id is None else self._live(agent_id, session_id)
        chosen = _commands(sandbox.info.metadata)
        if config is not None:
            chosen = {
                "timeout": config.timeout_seconds,
                "output_limit": config.output_max_bytes,
                "env": config.env_vars,
            }
        try:
            return _result(sandbox.run(command, **chosen))
        except PolicyDenied as error:
            raise _denied(error) from error

    def get_execution_status(self, agent_id: str, session_id: str, execution_id: str) -> ExecutionHandle:
        """How an execution is, with its result once it has ended."""
        self._session(agent_id, session_id)
        process = self._client.processes.get(execution_id)
        if process.info.sandbox_id != session_id:
            raise ProcessNotFound(f"session `{session_id}` has no execution `{execution_id}`")
        result = _result(process.result()) if process.info.ended else None
        return ExecutionHandle(execution_id, agent_id, session_id, _execution_status(process.info), result)

    def cancel_execution(self, agent_id: str, session_id: str, execution_id: str) -> bool:
        """Ends an execution and all it started. Whether it was still running."""
        if self.get_execution_status(agent_id, session_id, execution_id).result is not None:
            return False
        try:
            info = self._client.processes.get(execution_id).cancel()
        except ProcessEnded:
            return False
        return info.status == "cancelled"

    def list_executions(self, agent_id: str, session_id: str) -> list[ExecutionHandle]:
        """The executions of a session, newest first, without their results."""
        self._session(agent_id, session_id)
        return [
            ExecutionHandle(process.id, agent_id, session_id, _execution_status(process.info))
            for process in self._client.processes.list(sandbox=session_id)
        ]

    def _live(self, agent_id: str, session_id: str) -> Sandbox:
        sandbox = self._session(agent_id, session_id)
        if sandbox.info.state in ("destroying", "destroyed", "failed"):
            raise NoSession(f"session `{session_id}` has ended", remedy="call `create_session` again")
        return sandbox

    def _newest(self, agent_id: str) -> Sandbox:
        found = self._client.sandboxes.list(labels={AGENT_LABEL: agent_id})
        if not found:
            raise NoSession(f"agent `{agent_id}` has no session", remedy="call `create_session` first")
        return found[-1]

    # --- checkpoints ---

    def save_state(self, agent_id: str, session_id: str, name: str) -> Checkpoint:
        """Keeps `/workspace` of a session under a name, in the place of an earlier one of the agent."""
        sandbox = self._live(agent_id, session_id)
        _checked_name(name)
        return checkpoints.checkpoint(agent_id, checkpoints.save(self._client, sandbox, {AGENT_LABEL: agent_id}, name))

    def restore_state(self, agent_id: str, session_id: str, name: str, config: SandboxConfig | None = None) -> None:
        """Gives a session the files of a checkpoint of the agent; what ran in it has ended.

        The session keeps its id, its policy and its limits, so that there is no configuration to give.
        """
        if config is not None:
            raise NotEnforceable(
                "a session keeps its configuration", remedy="leave out `config`, or make a new session"
            )
        sandbox = self._live(agent_id, session_id)
        snapshot = checkpoints.find(self._client, {AGENT_LABEL: agent_id}, name)
        try:
            checkpoints.restore(self._client, sandbox, snapshot)
        except PolicyDenied as error:
            raise _denied(error) from error

    def list_checkpoints(self, agent_id: str) -> list[Checkpoint]:
        """The checkpoints of an agent, oldest first."""
        found = self._client.snapshots.list(labels={AGENT_LABEL: agent_id})
        return [checkpoints.checkpoint(agent_id, one) for one in found if checkpoints.NAME_LABEL in one.labels]

    def delete_checkpoint(self, agent_id: str, name: str) -> None:
        """Removes a checkpoint. Sessions that went back to it stay as they are."""
        self._client.snapshots.remove(checkpoints.find(self._client, {AGENT_LABEL: agent_id}, name).id)

    # --- the same for asyncio ---

    async def create_session_async(
        self, agent_id: str, policy: Any = None, config: SandboxConfig | None = None
    ) -> SessionHandle:
        return await asyncio.to_thread(self.create_session, agent_id, policy, config)

    async def execute_code_async(
        self, agent_id: str, session_id: str, code: str, *, context: Mapping[str, Any] | None = None
    ) -> ExecutionHandle:
        return await asyncio.to_thread(self.execute_code, agent_id, session_id, code, context=context)

    async def destroy_session_async(self, agent_id: str, session_id: str) -> None:
        await asyncio.to_thread(self.destroy_session, agent_id, session_id)

    async def run_async(
        self,
        agent_id: str,
        command: list[str],
        config: SandboxConfig | None = None,
        *,
        session_id: str | None = None,
    ) -> SandboxResult:
        return await asyncio.to_thread(self.run, agent_id, command, config, session_id=session_id)

    async def get_session_status_async(self, agent_id: str, session_id: str) -> SessionStatus:
        return await asyncio.to_thread(self.get_session_status, agent_id, session_id)

    async def get_execution_status_async(self, agent_id: str, session_id: str, execution_id: str) -> ExecutionHandle:
        return await asyncio.to_thread(self.get_execution_status, agent_id, session_id, execution_id)

    async def cancel_execution_async(self, agent_id: str, session_id: str, execution_id: str) -> bool:
        return await asyncio.to_thread(self.cancel_execution, agent_id, session_id, execution_id)

    async def save_state_async(self, agent_id: str, session_id: str, name: str) -> Checkpoint:
        return await asyncio.to_thread(self.save_state, agent_id, session_id, name)

    async def restore_state_async(
        self, agent_id: str, session_id: str, name: str, config: SandboxConfig | None = None
    ) -> None:
        await asyncio.to_thread(self.restore_state, agent_id, session_id, name, config)

    async def list_checkpoints_async(self, agent_id: str) -> list[Checkpoint]:
        return await asyncio.to_thread(self.list_checkpoints, agent_id)

    async def delete_checkpoint_async(self, agent_id: str, name: str) -> None:
        await asyncio.to_thread(self.delete_checkpoint, agent_id, name)


# --- between the two vocabularies ---


def _checked_name(name: str) -> None:
    if not AGENT_ID.fullmatch(name):
        raise InvalidName(f"`{name}` is no name of a checkpoint", remedy="use letters, digits, `_`, `.` and `-`")


def _options(config: SandboxConfig, governed: bool) -> CreateOptions:
    usual = SandboxConfig()
    options: CreateOptions = {
        "env": config.env_vars,
        "writable": not config.read_only_fs,
        "mounts": [
            *([f"{os.path.abspath(config.input_dir)}:/input:ro"] if config.input_dir else []),
            *([f"{os.path.abspath(config.output_dir)}:/output:rw"] if config.output_dir else []),
        ],
        # For whoever goes on with the session in another process.
        "metadata": {"timeout": repr(config.timeout_seconds), "output_limit": repr(config.output_max_bytes)},
    }
    # Under a policy its limits hold, and a configuration that says something of its own may only narrow them.
    limits: dict[str, Any] = {}
    if not governed or config.memory_mb != usual.memory_mb:
        limits["memory"] = config.memory_mb << 20
    if not governed or config.cpu_limit != usual.cpu_limit:
        limits["cpus"] = config.cpu_limit
    if limits:
        options["limits"] = limits
    if config.network_enabled:
        options["network"] = "full"
    if config.runtime is not None:
        wall = str(getattr(config.runtime, "value", config.runtime)).lower()
        if wall not in WALLS:
            raise NotEnforceable(f"there is no runtime `{wall}`", remedy=f"use {', '.join(sorted(WALLS))}")
        options["isolation"] = WALLS[wall]
    return options


def _commands(metadata: Mapping[str, str]) -> dict[str, Any]:
    usual = SandboxConfig()
    return {
        "timeout": float(metadata.get("timeout", usual.timeout_seconds)),
        "output_limit": int(metadata.get("output_limit", usual.output_max_bytes)),
    }


def _result(result: Result) -> SandboxResult:
    killed = result.reason in ("timed_out", "oom", "cancelled")
    reasons = {
        "timed_out": "the execution exceeded its timeout",
        "oom": "the session's memory ran out",
        "cancelled": "the execution was cancelled",
    }
    return SandboxResult(
        success=result.ok,
        exit_code=result.exit_code,
        stdout=result.stdout,
        stderr=result.stderr,
        duration_seconds=result.duration,
        killed=killed,
        kill_reason=reasons.get(result.reason, ""),
    )


def _handle(agent_id: str, session_id: str, result: Result) -> ExecutionHandle:
    status = ExecutionStatus.COMPLETED if result.ok else ExecutionStatus.FAILED
    if result.reason == "cancelled":
        status = ExecutionStatus.CANCELLED
    return ExecutionHandle(result.process_id, agent_id, session_id, status, _result(result))


def _execution_status(info: ProcessInfo) -> ExecutionStatus:
    return EXECUTION_STATES[info.status]


def _denied(error: PolicyDenied) -> ExecutionDenied:
    return ExecutionDenied(
        error.message,
        cause=error.cause,
        remedy=error.remedy,
        docs=error.docs,
        request_id=error.request_id,
        decision=error.decision,
    )


def _context(context: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"context": context} if context else {}
