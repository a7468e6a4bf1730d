"""Sandboxes behind the provider interface of the Agent Governance Toolkit: sessions of agents that execute code.

    provider = SandboxProvider()                      # or SandboxProvider("https://…", api_key="…")
    session = provider.create_session("agent-1", policy="policy.yaml")
    print(provider.execute_code("agent-1", session.session_id, "print(1)").result.stdout)
    provider.destroy_session("agent-1", session.session_id)

`belljar.providers.agt` has the same as a provider of the installed toolkit.
"""

from belljar.providers.provider import SandboxProvider
from belljar.providers.types import (
    Checkpoint,
    ExecutionDenied,
    ExecutionHandle,
    ExecutionStatus,
    NoCheckpoint,
    NoSession,
    SandboxConfig,
    SandboxResult,
    SessionHandle,
    SessionStatus,
)

__all__ = [
    "Checkpoint",
    "ExecutionDenied",
    "ExecutionHandle",
    "ExecutionStatus",
    "NoCheckpoint",
    "NoSession",
    "SandboxConfig",
    "SandboxProvider",
    "SandboxResult",
    "SessionHandle",
    "SessionStatus",
]
