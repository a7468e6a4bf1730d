"""The provider interface of the Agent Governance Toolkit: sessions, code, and policies that decide."""

from __future__ import annotations

from belljar.providers import SandboxProvider

provider = SandboxProvider()
try:
    session = provider.create_session("agent-1")
    execution = provider.execute_code("agent-1", session.session_id, "print(sum(range(10)))")
    print(execution.status.value, execution.result.stdout.strip() if execution.result else "")
    provider.destroy_session("agent-1", session.session_id)
    print(provider.get_session_status("agent-1", session.session_id).value)
finally:
    provider.close()
