//! What a backend is asked to start and what it hands back.

use std::collections::BTreeMap;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::path::PathBuf;

use belljar_policy::{Access, Limits, NetworkMode, Programs, SandboxId};
use serde::{Deserialize, Serialize};

use crate::Enforcement;

/// A bidirectional byte stream to an agent; every transport ends up as a Unix stream socket on the host's side.
pub type Stream = tokio::net::UnixStream;

/// A sandbox to be started. Host directories come as descriptors that the caller opened with its own rights, so a
/// backend never follows a name.
#[derive(Debug)]
pub struct SandboxSpec {
    pub id: SandboxId,
    pub root: RootSource,
    /// The whole root is a copy-on-write layer instead of read-only.
    pub writable_root: bool,
    pub mounts: Vec<ResolvedMount>,
    /// Files and directories that come, read-only, over ones that the root has already.
    pub covers: Vec<ResolvedMount>,
    /// What is hidden below mounts.
    pub masks: Vec<Mask>,
    pub limits: Limits,
    /// Accept weaker mechanisms for limits that were asked for.
    pub best_effort: bool,
    pub network: NetworkMode,
    pub user: UserIds,
    pub hostname: String,
    pub programs: Option<Programs>,
    /// Code inside may call tools of the host.
    pub tools: bool,
    /// What runs in the backend, where it has several; `None`: the best that works.
    pub runtime: Option<RuntimeChoice>,
}

/// A runtime, as a probe found it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuntimeChoice {
    pub name: String,
    pub platform: Option<String>,
}

/// What is below the sandbox's own files.
#[derive(Debug)]
pub enum RootSource {
    /// The host's own programs and libraries, read-only, with a synthesised `/etc`.
    Host,
    /// An unpacked root file system.
    Directory { path: PathBuf, descriptor: OwnedFd },
    /// An image in the store of the backend's own engine, by name.
    Image { name: String },
}

#[derive(Debug)]
pub struct ResolvedMount {
    pub source: MountSource,
    /// Absolute, normalised, inside the sandbox.
    pub target: PathBuf,
    pub access: Access,
    /// Changes go to a layer of the sandbox; the source stays as it is. Only for the workspace.
    pub overlay: bool,
}

/// Something below a mount that is not to be seen: it appears empty, and cannot be written, renamed or removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mask {
    /// Absolute, normalised, inside the sandbox; there, without a link on the way, when the sandbox was asked for.
    pub target: PathBuf,
    pub kind: MaskKind,
}

impl Mask {
    /// What `masks` promise, in words.
    #[must_use]
    pub fn rule(masks: &[Self]) -> Option<String> {
        let paths: Vec<_> = masks.iter().map(|mask| mask.target.display().to_string()).collect();
        (!paths.is_empty()).then(|| format!("hidden: {}", paths.join(", ")))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MaskKind {
    Directory,
    /// Anything else.
    File,
}

#[derive(Debug)]
pub struct MountSource {
    /// For messages and records only.
    pub path: PathBuf,
    pub descriptor: OwnedFd,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserIds {
    pub uid: u32,
    pub gid: u32,
}

/// A started sandbox.
#[derive(Debug)]
pub struct Running {
    /// Connected to the agent; nothing has been said on it yet.
    pub stream: Stream,
    /// What the agent must be told so that it does its part of the wall.
    pub agent: AgentSetup,
    pub enforcement: Vec<Enforcement>,
    /// Whether it was made of parts that were ready ahead of the request; `None` where a backend keeps none.
    pub was_ready: Option<bool>,
}

/// The backend's part of the agent's configuration.
#[derive(Clone, Debug, Default)]
pub struct AgentSetup {
    /// For everything that the agent starts.
    pub seccomp: Vec<Vec<u8>>,
    /// For the agent too.
    pub shared_seccomp: Vec<Vec<u8>>,
    pub landlock: Vec<(PathBuf, LandlockAccess)>,
    pub tree_kill: TreeKill,
    pub resource_limits: Vec<ResourceLimit>,
    pub root_capabilities: u64,
    pub memory_watch_bytes: Option<u64>,
    pub single_user: bool,
    /// Environment that the root needs (PATH above all).
    pub environment: BTreeMap<String, String>,
    pub service_socket: Option<PathBuf>,
    pub tool_socket: Option<PathBuf>,
    /// Variables and what stands at the end of each, whatever the caller says.
    pub search_paths: Vec<(String, String)>,
    pub workspace_layer: Option<PathBuf>,
    /// Where processes start unless told otherwise; `/workspace` where this is absent.
    pub working_directory: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LandlockAccess {
    ReadExecute,
    ReadWrite,
    Devices,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TreeKill {
    #[default]
    Cgroup,
    Subreaper,
    /// One process at a time without a subreaper of its own, where making one is dear.
    Direct,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResourceLimit {
    pub resource: u32,
    pub soft: u64,
    pub hard: u64,
}

/// The sockets in which everything ends that a sandbox sends. They are bound, those for connections listen, and none
/// blocks. When all of them are closed, the sandbox has no network.
#[derive(Debug, Default)]
pub struct Doors {
    /// All connections that go to no name server; the kernel tells where they were meant to go.
    pub tcp: Vec<TcpListener>,
    pub dns_udp: Vec<UdpSocket>,
    pub dns_tcp: Vec<TcpListener>,
    /// Datagrams to one port each, with where they were meant to go.
    pub udp: Vec<(u16, UdpSocket)>,
    /// For programs that were told of a proxy.
    pub proxy: Vec<TcpListener>,
}

/// Figures from the host's side of the wall. Counters only grow during a sandbox's life.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub oom_kills: u64,
    pub pids_refused: u64,
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub cpu_us: Option<u64>,
    pub pids: Option<u32>,
    /// Free bytes and inodes of the sandbox's disk, where it has one of its own.
    pub disk_free_bytes: Option<u64>,
    pub disk_free_inodes: Option<u64>,
}

/// How far one part of an image is that is being fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchStep {
    /// As the backend calls it.
    pub part: String,
    pub state: FetchState,
    /// Bytes of it that have come, and of how many, while they come.
    pub bytes: Option<u64>,
    pub of: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchState {
    Waiting,
    Coming,
    Unpacking,
    Done,
}

/// Something left over on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Orphan {
    /// "process", "cgroup", "directory", "mount", "loop-device", ...
    pub kind: String,
    pub name: String,
    pub sandbox: Option<SandboxId>,
}
