//! The shapes in which state is kept. They change only together with the schema.

use std::collections::BTreeMap;

use belljar_backend::RuntimeChoice;
use belljar_policy::scan::Finding;
use belljar_policy::{Limits, ProcessId, SandboxId, TenantId};

use crate::network::NetworkRecord;
use serde::{Deserialize, Serialize};

/// A sandbox's state as stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Creating,
    Ready,
    Paused,
    Destroying,
    Destroyed,
    Failed,
}

impl State {
    pub(crate) const ALL: [Self; 6] = [
        Self::Creating,
        Self::Ready,
        Self::Paused,
        Self::Destroying,
        Self::Destroyed,
        Self::Failed,
    ];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Creating => "creating",
            Self::Ready => "ready",
            Self::Paused => "paused",
            Self::Destroying => "destroying",
            Self::Destroyed => "destroyed",
            Self::Failed => "failed",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == text)
    }
}

/// One sandbox. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SandboxRecord {
    pub(crate) id: SandboxId,
    pub(crate) tenant: TenantId,
    pub(crate) name: Option<String>,
    pub(crate) backend: String,
    pub(crate) state: State,
    /// What an ephemeral sandbox ends with: the token of an engine, or a process (see [`Owner`]).
    pub(crate) owner: Option<String>,
    /// The token of the engine that is moving it from one state to another.
    pub(crate) worker: Option<String>,
    pub(crate) created_at: i64,
    pub(crate) used_at: i64,
    pub(crate) idle_ms: Option<u64>,
    pub(crate) hard_ms: Option<u64>,
    /// When the hard clock started.
    pub(crate) hard_from: i64,
    pub(crate) failure: Option<String>,
    pub(crate) details: Details,
}

/// What is known about a sandbox and rarely searched for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Details {
    pub(crate) template: String,
    pub(crate) family: Option<String>,
    pub(crate) class: String,
    /// What runs in the backend, where it has several.
    #[serde(default)]
    pub(crate) runtime: Option<RuntimeChoice>,
    /// Why it is this backend.
    #[serde(default)]
    pub(crate) backend_reason: String,
    pub(crate) network_mode: String,
    pub(crate) network_enforcement: String,
    pub(crate) network: NetworkRecord,
    pub(crate) writable_paths: Vec<String>,
    pub(crate) timeout_secs: u64,
    pub(crate) enforcement: Vec<EnforcementRecord>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) metadata: BTreeMap<String, String>,
    /// What was asked for.
    pub(crate) limits: Limits,
    pub(crate) workspace: Option<WorkspaceRecord>,
    pub(crate) user: String,
    /// Everything that decides whether a later request means the same sandbox, hashed.
    pub(crate) shape: String,
    pub(crate) stripped_environment: Vec<String>,
    /// Where commands start, if not in the workspace.
    pub(crate) workdir: Option<String>,
    /// What it runs under.
    pub(crate) policy: Option<PolicyRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PolicyRecord {
    pub(crate) name: String,
    pub(crate) version: Option<u32>,
    pub(crate) digest: String,
    #[serde(default)]
    pub(crate) recording: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct EnforcementRecord {
    pub(crate) subject: belljar_backend::Subject,
    pub(crate) rule: String,
    pub(crate) mechanism: String,
    pub(crate) full: bool,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct WorkspaceRecord {
    /// Raw bytes: a path need not be UTF-8.
    pub(crate) path: Vec<u8>,
    pub(crate) mode: String,
    /// The directory itself; the path may lead elsewhere by the time changes are applied.
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// When the layer was last empty, in nanoseconds since 1970, as precise as the times of files: what changed on the
    /// host after this is in conflict with it.
    pub(crate) layer_since: u64,
}

/// Where a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProcessStatus {
    Starting,
    Running,
    Succeeded,
    Failed,
    Cancelled,
    Lost,
}

impl ProcessStatus {
    pub(crate) const ALL: [Self; 6] =
        [Self::Starting, Self::Running, Self::Succeeded, Self::Failed, Self::Cancelled, Self::Lost];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == text)
    }
}

/// One process. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ProcessRecord {
    pub(crate) id: ProcessId,
    pub(crate) sandbox: SandboxId,
    pub(crate) tenant: TenantId,
    pub(crate) status: ProcessStatus,
    /// The token of the engine that takes its output and records its end.
    pub(crate) attendant: String,
    /// For people.
    pub(crate) command: String,
    pub(crate) pid: Option<u32>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) started_at: i64,
    pub(crate) finished_at: Option<i64>,
    pub(crate) exit: Option<ExitRecord>,
    pub(crate) details: ProcessDetails,
}

/// What is known about a process and never searched for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ProcessDetails {
    pub(crate) terminal: bool,
    pub(crate) stdin: bool,
    /// Few processes have any.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) findings: Vec<Finding>,
}

impl ProcessDetails {
    /// A terminal takes input also where no pipe was asked for.
    pub(crate) fn takes_input(&self) -> bool {
        self.stdin || self.terminal
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ExitRecord {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) reason: String,
    pub(crate) limits_hit: Vec<String>,
    pub(crate) duration_us: u64,
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
    pub(crate) peak_rss_bytes: u64,
    #[serde(default)]
    pub(crate) read_bytes: u64,
    #[serde(default)]
    pub(crate) written_bytes: u64,
    /// How far its output was known: standard output and standard error.
    #[serde(default)]
    pub(crate) log_end: Option<(u64, u64)>,
}

/// What an ephemeral sandbox ends with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// The engine that has this token.
    Engine(String),
    /// A process: whoever sees that it has ended destroys the sandbox.
    Process(ProcessId),
}

/// Tokens have no colon.
const PROCESS: &str = "process:";

impl Owner {
    pub(crate) fn parse(text: &str) -> Self {
        let process = text.strip_prefix(PROCESS).and_then(|id| ProcessId::parse(id).ok());
        process.map_or_else(|| Self::Engine(text.to_owned()), Self::Process)
    }

    pub(crate) fn to_text(&self) -> String {
        match self {
            Self::Engine(token) => token.clone(),
            Self::Process(id) => format!("{PROCESS}{id}"),
        }
    }
}
