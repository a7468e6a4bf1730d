//! What the unprivileged side asks and the launcher answers. Both are the same binary, so there are no versions.
//!
//! One message per packet; descriptors travel beside it and are named by their index. The launcher trusts none of
//! it further than the asking process could act itself: sources are descriptors, ids and targets are checked.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

/// The gateway's addresses, the same for every sandbox, as no two share a link.
///
/// From a prefix for devices that translate between networks (RFC 7335): no network that a sandbox may want to reach is
/// ever there. The other is a prefix of our own among the local ones.
pub const GATEWAY_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 1);
pub const GATEWAY_V6: Ipv6Addr = Ipv6Addr::new(0xfd62, 0x6c6a, 0x7200, 0, 0, 0, 0, 1);
/// Where programs inside find the proxy.
pub const PROXY_PORT: u16 = 3128;

/// Where a sandbox that a runtime encloses has the agent's program, relative to its root.
pub const INIT_DIRECTORY: &str = "run/belljar/init";

/// The name of the socket that an agent makes for itself where it was given none. It is in no directory.
pub const AGENT_SOCKET: &[u8] = b"belljar-agent";

#[derive(Debug, Serialize, Deserialize)]
pub struct Request {
    pub serial: u64,
    pub ask: Ask,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Ask {
    /// Descriptors: the state directory and the agent's program. Answered by `Facts`.
    Hello { state_directory: Vec<u8> },
    /// Answered by `Started` once the agent's program runs.
    Start(Box<Start>),
    /// Kills and removes; also what is half made or not there at all. Answered by `Done`.
    Stop { id: String },
    /// Answered by `Counters`.
    Counters { id: String },
    /// Stops everything in the sandbox, or lets it go on. Answered by `Done`.
    Freeze { id: String, frozen: bool },
    /// Gives the sandbox an empty workspace layer. Answered by `Done`.
    ResetLayer { id: String },
    /// Makes the gateway of a sandbox that runs, anew where there is one. Answered by `Doors`, with a descriptor each.
    Doors { id: String, udp_ports: Vec<u16> },
    /// The same for a network namespace that somebody else made: the only descriptor.
    DoorsOf { udp_ports: Vec<u16> },
    /// Connects to the agent that listens at a socket of its own in a network namespace, the only descriptor. Answered by
    /// `Connected`.
    ConnectOf,
    /// Answered by `Found`: everything on this host that belongs to this installation.
    Find,
}

#[derive(Debug, Serialize, Deserialize)]
pub struct Reply {
    pub serial: u64,
    pub answer: Answer,
}

#[derive(Debug, Serialize, Deserialize)]
pub enum Answer {
    Facts(Facts),
    Started {
        /// Of a sandbox that wanted some, where they could be made with it: a descriptor each.
        doors: Vec<Door>,
        /// Everything that could be made ahead of the request had been.
        was_ready: bool,
    },
    Done,
    Counters(Counters),
    Doors(Vec<Door>),
    /// With the connection.
    Connected,
    Found(Vec<Object>),
    Failed(Failure),
}

/// A socket in the gateway of a sandbox. It listens, or is bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Door {
    pub kind: DoorKind,
    pub port: u16,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DoorKind {
    /// Takes all connections but those to name servers and to the proxy; the kernel knows where they wanted to go.
    Tcp,
    DnsUdp,
    DnsTcp,
    /// Datagrams to this port, wherever they go.
    Udp,
    /// For programs that were told of a proxy.
    Proxy,
}

/// What this launcher can do on this host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    pub privileged: bool,
    /// "cgroup v1", "cgroup v2" per controller, where there is one.
    pub memory: Option<String>,
    pub cpu: Option<String>,
    pub pids: Option<String>,
    /// Whole groups can be killed at once.
    pub group_kill: bool,
    /// Disks can be images of their own, with a size and a number of inodes.
    pub disk_image: bool,
    pub cpus: u32,
}

/// A host directory or file: the descriptor's index and, for a launcher that cannot clone mounts itself, its path.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Tree {
    pub descriptor: usize,
    pub path: Vec<u8>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    pub id: String,
    pub hostname: String,
    pub uid: u32,
    pub gid: u32,
    /// The lowest layer comes last. The first holds the mount points.
    pub root: Vec<Tree>,
    pub writable_root: bool,
    /// Read-only, in this order, beneath the root.
    pub binds: Vec<Bind>,
    pub mounts: Vec<Mount>,
    /// Read-only, over what mounts show.
    pub masks: Vec<Bind>,
    pub memory_bytes: Option<u64>,
    pub cpu_millis: Option<u32>,
    pub pids: Option<u32>,
    pub disk: Disk,
    pub shared_memory_bytes: u64,
    /// A place at which the agent can serve a socket to the inside.
    pub service: bool,
    /// It has a network, for which doors may be made with it.
    pub doors: bool,
    /// CPUs to stay on, where no controller limits the share.
    pub affinity: Option<u64>,
    /// What is to enclose the agent, where that is not the launcher itself.
    pub runtime: Option<Runtime>,
}

/// An OCI runtime.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Runtime {
    pub kind: RuntimeKind,
    /// It will have the launcher's privilege, so it must belong to root and nobody else may write to it.
    pub program: Tree,
}

/// How a runtime is spoken to, and what it makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum RuntimeKind {
    Runc,
    Crun,
    /// gVisor.
    Runsc(Platform),
}

/// How gVisor catches the system calls of what runs inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Platform {
    Systrap,
    Kvm,
    Ptrace,
}

impl RuntimeKind {
    /// Whether system calls inside are answered by a kernel other than the host's.
    #[must_use]
    pub const fn has_own_kernel(self) -> bool {
        matches!(self, Self::Runsc(_))
    }

    /// The usual name of its program.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Runc => "runc",
            Self::Crun => "crun",
            Self::Runsc(_) => "runsc",
        }
    }
}

impl Platform {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Systrap => "systrap",
            Self::Kvm => "kvm",
            Self::Ptrace => "ptrace",
        }
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bind {
    pub source: Tree,
    /// Relative to the root.
    pub target: Vec<u8>,
    /// With a writable root this one gets a layer too.
    pub layered: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Mount {
    pub source: Tree,
    /// Relative to the root.
    pub target: Vec<u8>,
    pub kind: MountKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MountKind {
    ReadOnly,
    ReadWrite,
    /// Changes go to the sandbox's workspace layer.
    Layer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Disk {
    pub bytes: u64,
    pub inodes: u64,
    pub kind: DiskKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiskKind {
    /// A file system of its own in a sparse file.
    Image,
    /// Memory; counts against the memory limit.
    Memory,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    pub oom_kills: u64,
    pub pids_refused: u64,
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub cpu_us: Option<u64>,
    pub pids: Option<u32>,
    pub disk_free_bytes: Option<u64>,
    pub disk_free_inodes: Option<u64>,
}

/// Something on this host that belongs to a sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Object {
    /// "process", "cgroup", "directory", "id-range".
    pub kind: String,
    pub name: String,
    pub id: Option<String>,
}

/// A failure as structure, to be rendered where hints are made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{stage}: {}", std::io::Error::from_raw_os_error(*.errno))]
pub struct Failure {
    pub stage: String,
    pub errno: i32,
    pub path: Option<Vec<u8>>,
}
