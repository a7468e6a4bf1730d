"""Sealed, see-through computers for untrusted code.

    from belljar import Belljar

    with Belljar() as client:
        with client.sandboxes.create() as sandbox:
            print(sandbox.run("echo hello").stdout)

`AsyncBelljar` is the same for `asyncio`.
"""

import belljar._fork  # noqa: F401
from belljar._administration import AuditRecord, Caller, Key, Leak, Probe, Quotas, Tenant, Token, Webhook
from belljar._async.client import AsyncBelljar
from belljar._async.process import AsyncProcess
from belljar._async.sandbox import AsyncSandbox
from belljar._decisions import Connection, Request, RequestVerdict, Tls, Verdict
from belljar._entries import Copied, FileEvent, FileInfo, SearchHit, Unpacked
from belljar._failure import BelljarError, Decision
from belljar._flows import Approval, NetworkDecision, NetworkInfo
from belljar._generated.codes import PolicyDenied, TimedOut
from belljar._kept import FetchStep, LearnedPolicy, Profile, Secret, Snapshot
from belljar._models import (
    Enforcement,
    Event,
    Explanation,
    ExposedPort,
    Isolation,
    LayerChange,
    Limits,
    PolicyInfo,
    SandboxInfo,
    SandboxPolicy,
    Server,
    Template,
    Workspace,
)
from belljar._outcomes import (
    Artifact,
    CommandCancelled,
    CommandFailed,
    CommandOutOfMemory,
    CommandTimedOut,
    Finding,
    Logs,
    Offsets,
    Output,
    ProcessInfo,
    Result,
    Usage,
)
from belljar._ranges import Endpoint
from belljar._requests import CommandOptions, CreateOptions
from belljar._sync.client import Belljar
from belljar._sync.process import Process
from belljar._sync.sandbox import Sandbox

__version__ = "0.1.0"

__all__ = [
    "Approval",
    "Artifact",
    "AsyncBelljar",
    "AsyncProcess",
    "AsyncSandbox",
    "AuditRecord",
    "Belljar",
    "BelljarError",
    "Caller",
    "CommandCancelled",
    "CommandFailed",
    "CommandOptions",
    "CommandOutOfMemory",
    "CommandTimedOut",
    "Connection",
    "Copied",
    "CreateOptions",
    "Decision",
    "Endpoint",
    "Enforcement",
    "Event",
    "Explanation",
    "ExposedPort",
    "FetchStep",
    "FileEvent",
    "FileInfo",
    "Finding",
    "Isolation",
    "Key",
    "LayerChange",
    "Leak",
    "LearnedPolicy",
    "Limits",
    "Logs",
    "NetworkDecision",
    "NetworkInfo",
    "Offsets",
    "Output",
    "PolicyDenied",
    "PolicyInfo",
    "Probe",
    "Process",
    "ProcessInfo",
    "Profile",
    "Quotas",
    "Request",
    "RequestVerdict",
    "Result",
    "Sandbox",
    "SandboxInfo",
    "SandboxPolicy",
    "SearchHit",
    "Secret",
    "Server",
    "Snapshot",
    "Template",
    "Tenant",
    "TimedOut",
    "Tls",
    "Token",
    "Unpacked",
    "Usage",
    "Verdict",
    "Webhook",
    "Workspace",
]
