//! What callers ask for. Plain data; everything in it was parsed by `belljar-policy`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::{EgressSettings, NetworkCallback, PolicyChoice, VolumeRequest};
use belljar_backend::{Backend, IsolationClass};
use belljar_policy::document::Value;
use belljar_policy::{
    Environment, Family, Limits, MountSpec, NetworkPolicy, Programs, SandboxName, TemplateSpec,
    UserSpec, WorkspaceMode,
};
use ipnet::IpNet;

/// How long a sandbox may go unused before it ends by itself.
pub const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(1800);

/// How long records and logs of what has ended are kept.
pub const DEFAULT_RETENTION: Duration = Duration::from_secs(7 * 24 * 3600);

/// Output kept in memory per stream by [`crate::Process::wait`].
pub const DEFAULT_MEMORY_CAP: usize = 1 << 20;

/// What an engine works with.
pub struct EngineOptions {
    pub state_dir: PathBuf,
    /// In the order in which `auto` prefers them. `auto` never chooses `local`.
    pub backends: Vec<Arc<dyn Backend>>,
    /// The caller's home directory: what must not be mounted is looked for below it too.
    pub home: Option<PathBuf>,
    /// How long records and logs of what has ended are kept.
    pub retention: Duration,
    /// For a program that lives long: attends to every process that nobody attends to, and looks after the state
    /// directory for as long as the engine is open.
    pub attend: bool,
    /// The file with the key that seals secrets; without one, a file of the state directory that is made when needed.
    pub secrets_key: Option<PathBuf>,
    /// How sandboxes with a network are served.
    pub egress: EgressSettings,
}

impl EngineOptions {
    #[must_use]
    pub fn new(state_dir: impl Into<PathBuf>, backends: Vec<Arc<dyn Backend>>) -> Self {
        Self {
            state_dir: state_dir.into(),
            backends,
            home: None,
            retention: DEFAULT_RETENTION,
            attend: false,
            secrets_key: None,
            egress: EgressSettings::default(),
        }
    }
}

/// Which wall.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum BackendChoice {
    /// The strongest that works fast and isolates.
    #[default]
    Auto,
    Named(String),
}

/// The workspace directory of a sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceRequest {
    /// Possibly relative to the caller's working directory.
    pub path: PathBuf,
    pub mode: WorkspaceMode,
}

/// A sandbox to be created.
#[derive(Clone, Debug, Default)]
pub struct CreateRequest {
    pub name: Option<SandboxName>,
    pub template: TemplateSpec,
    /// What the caller found in the command's words, with the reason. Without it, manifests in the workspace speak.
    pub family_hint: Option<(Family, String)>,
    pub backend: BackendChoice,
    /// What runs in the backend, where it has several.
    pub runtime: Option<String>,
    pub isolation_floor: Option<IsolationClass>,
    /// The caller said that no isolation is fine; needed for `local`.
    pub waive_isolation: bool,
    pub network: NetworkPolicy,
    /// The caller chose `network`; otherwise it is what the policy says, if there is one.
    pub network_asked: bool,
    /// Addresses that are not public and may be reached all the same.
    pub network_cidrs: Vec<IpNet>,
    /// How long what nothing allows waits for somebody to allow it.
    pub network_ask: Option<Duration>,
    /// What a program that is connected decides about.
    pub network_callback: NetworkCallback,
    /// Ports of UDP to which a program may allow datagrams.
    pub network_callback_udp: Vec<u16>,
    pub limits: Limits,
    /// Accept weaker mechanisms for limits that were asked for.
    pub best_effort: bool,
    pub workspace: Option<WorkspaceRequest>,
    pub mounts: Vec<MountSpec>,
    /// Paths inside, below mounts or the workspace, that appear empty.
    pub masks: Vec<PathBuf>,
    /// The tenant's own storage.
    pub volume: Option<VolumeRequest>,
    pub environment: Environment,
    pub user: UserSpec,
    pub workdir: Option<PathBuf>,
    pub writable: bool,
    pub programs: Option<Programs>,
    /// `None`: [`DEFAULT_IDLE_TIMEOUT`]. Zero: never.
    pub idle_timeout: Option<Duration>,
    pub hard_limit: Option<Duration>,
    /// Shell lines that run once in a sandbox's life.
    pub ensure: Vec<String>,
    pub labels: BTreeMap<String, String>,
    /// Texts of the caller's own, up to 64 of 4 KiB each.
    pub metadata: BTreeMap<String, String>,
    /// A sandbox of that name which exists must have been made with the same options.
    pub same_shape: bool,
    /// How long commands may run, for explanations; each command carries its own.
    pub timeout: Option<Duration>,
    /// [`crate::Engine::create`] with a key that it has seen within a day gives the sandbox of that time, if the request is
    /// the same, and refuses another one. Sessions are found by their names and do not look at it.
    pub idempotency_key: Option<String>,
    /// What the sandbox runs under; the other fields may ask for less than it allows, never for more.
    pub policy: Option<PolicyChoice>,
}

/// A change to how long a sandbox may live. `None`: unchanged; zero: without limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Without being used.
    pub idle: Option<Duration>,
    /// At all, from now on.
    pub hard: Option<Duration>,
}

/// Which sandbox a run wants.
#[derive(Clone, Debug)]
pub enum SessionRequest {
    /// The one that earlier runs of the same shape used, or a new one.
    Automatic(CreateRequest),
    /// The one of that name, or a new one.
    Named(CreateRequest),
    /// An id or name that exists.
    Existing(String),
    /// A new one that ends with the run.
    Ephemeral(CreateRequest),
}

/// What to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    Argv(Vec<OsString>),
    /// A line for `/bin/sh`.
    Shell(OsString),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Stdin {
    #[default]
    Null,
    /// Written with [`crate::ProcessControl::write_stdin`].
    Piped,
}

/// A command to be run in a sandbox.
#[derive(Clone, Debug)]
pub struct ExecRequest {
    pub program: Program,
    /// Added to, and winning over, the sandbox's own.
    pub environment: Environment,
    /// `None`: the sandbox's own.
    pub workdir: Option<PathBuf>,
    /// `None`: the sandbox's own.
    pub user: Option<UserSpec>,
    pub stdin: Stdin,
    /// Rows and columns; a terminal is made where this is given.
    pub terminal: Option<(u16, u16)>,
    pub timeout: Option<Duration>,
    /// The caller chose `timeout`; otherwise it is what the policy says, if there is one.
    pub timeout_asked: bool,
    /// Bytes that [`crate::Process::wait`] keeps per stream.
    pub memory_cap: usize,
    /// Keep all output in the process log, beyond the end of the process.
    pub keep_output: bool,
    /// [`crate::Engine::start`] with a key that it has seen within a day gives the process of that time, if the request is
    /// the same, and refuses another one.
    pub idempotency_key: Option<String>,
    /// Where the command is a program text: its language.
    pub language: Option<String>,
    /// What the caller tells the sandbox's policy about it.
    pub context: BTreeMap<String, Value>,
}

impl ExecRequest {
    #[must_use]
    pub fn new(program: Program) -> Self {
        Self {
            program,
            environment: Environment::default(),
            workdir: None,
            user: None,
            stdin: Stdin::Null,
            terminal: None,
            timeout: None,
            timeout_asked: false,
            memory_cap: DEFAULT_MEMORY_CAP,
            keep_output: true,
            idempotency_key: None,
            language: None,
            context: BTreeMap::new(),
        }
    }
}
