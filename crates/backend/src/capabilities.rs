//! What a backend promises, as data.

use serde::{Deserialize, Serialize};

/// How strong a wall is. The order is the order of strength; `Wasm` stands beside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum IsolationClass {
    #[default]
    None,
    Namespace,
    Kernel,
    Vm,
    Wasm,
}

impl IsolationClass {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Namespace => "namespace",
            Self::Kernel => "kernel",
            Self::Vm => "vm",
            Self::Wasm => "wasm",
        }
    }
}

/// A rule of a sandbox, for explanations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    Filesystem,
    Memory,
    Cpu,
    Pids,
    Disk,
    Network,
    Syscalls,
    Identity,
    Processes,
    Programs,
}

/// One rule and what enforces it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enforcement {
    pub subject: Subject,
    /// The rule in words: "512 MiB", "no network".
    pub rule: String,
    /// The mechanism: "cgroup v1 memory.limit_in_bytes".
    pub mechanism: String,
    /// False where a default fell to a weaker mechanism, or `--best-effort` accepted less.
    pub full: bool,
}

/// What a backend could be on this host, found without running anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offer {
    /// No sandbox of it is stronger than this.
    pub strongest: IsolationClass,
    /// The runtimes that it knows by name, installed or not; empty where there is nothing to choose.
    pub runtimes: Vec<String>,
    /// Changes when what a probe found may no longer hold.
    pub fingerprint: String,
}

/// The result of trying a backend on this host.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Probe {
    pub backend: String,
    /// What runs in it, where the backend has several.
    pub runtime: Option<String>,
    /// How that runtime catches system calls, where it has a choice.
    pub platform: Option<String>,
    /// Fast enough to be chosen unasked.
    pub fast: bool,
    pub works: bool,
    pub class: IsolationClass,
    /// Why it does not work, or what it runs on.
    pub reason: String,
    pub remedy: Option<String>,
    /// Time to start and end the tiny sandbox, where it ran.
    pub start_ms: Option<f64>,
    /// What a sandbox with the default limits would be held by.
    pub enforcement: Vec<Enforcement>,
}
