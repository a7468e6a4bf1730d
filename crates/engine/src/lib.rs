//! The life of sandboxes: creating, using, listing and destroying them, with all state in one directory.
//!
//! An [`Engine`] ties a backend (the wall), the agent protocol (what happens inside) and a store (what is remembered)
//! together. It is used in process by a one-shot command and by a long-lived server alike: every call may be made by
//! many tasks at once, and any number of processes may open the same state directory at the same time.
//!
//! What holds at all times:
//!
//! - A step that makes something is in the journal before it happens, and has an undo. Whatever dies, the next
//!   [`Engine::open`] makes the record true again.
//! - One engine at a time moves a sandbox from state to state; the kernel tells whether that engine is still alive.
//! - Everything from inside a sandbox is bounded: output in memory and on disk, queues, listings, names.
//! - The host never follows a path that a sandbox controls.
//!
//! Not here: arguments, HTTP, terminals, and the kernel; those belong to binaries and backends. Public types are not
//! serialisable on purpose: wire types are converted by hand where they are needed.

#![forbid(unsafe_code)]

mod agent;
mod artifacts;
mod aside;
mod audit;
mod backends;
mod background;
mod create;
mod destroy;
mod engine;
mod ensure;
mod error;
mod events;
mod explain;
pub mod fault;
mod files;
mod fingerprint;
mod hold;
mod keys;
mod layer;
mod leaks;
mod live;
mod lock;
mod log;
mod masks;
mod mounts;
mod network;
mod once;
mod plan;
mod policy;
mod ports;
mod presence;
mod process;
mod query;
mod random;
mod recovery;
mod request;
mod reserve;
mod sandbox;
mod scope;
mod secret;
mod secrets;
mod session;
mod snapshot;
mod state_dir;
mod store;
mod template;
mod tenants;
mod time;
mod tools;
mod transition;
mod volume;
mod webhooks;

pub use artifacts::Artifact;
pub use aside::{aside, aside_if};
pub use audit::{AuditEntry, AuditLog, AuditQuery, AuditReader, AuditRecord, AuditReport};
pub use belljar_egress::{
    Callback as NetworkCallback, Connecting, Decider, Decision, Greeting, Handled, HandledRequest,
    Identity, SecretError, Settings as EgressSettings, Upstream,
};
pub use belljar_policy::{ProcessId, SandboxId, TenantId};
pub use engine::Engine;
pub use error::{Error, Result};
pub use events::{Event, EventKind, Events};
pub use explain::Explanation;
pub use files::{
    ArchiveFormat, ArchiveReader, CopyOptions, CopyReport, ExtractLimits, ExtractReport, FileInfo,
    FileKind, FileReader, FileWatch, FileWriter, Files, ListOptions, Listing, Search, SearchHit,
    SearchRequest, WatchEvent, WriteMode, WriteOptions,
};
pub use ipnet::IpNet;
pub use keys::{KeyInfo, KeyScope, Keys, NewKey, Role};
pub use layer::{LayerChange, LayerChangeKind};
pub use leaks::LeakReport;
pub use log::{Channel, LogReader, Offsets, Record};
pub use network::{
    ApprovalAnswer, Network, NetworkChange, NetworkEntry, NetworkLog, NetworkQuery,
    PendingApproval, egress_settings, parse_cidr,
};
pub use policy::{
    Asker, Judged, KeptPolicy, Learned, Policies, PolicyChoice, PolicyName, PolicyRef, Question,
    QuestionKind, SandboxPolicy,
};
pub use ports::{ExposedPort, Tunnel};
pub use process::{
    Captured, Completed, Exit, ExitStatus, Followed, Follower, Process, ProcessControl,
    ProcessEvent, ProcessInfo, ProcessStatus, Reason, Started, Usage,
};
pub use query::{Page, ProcessQuery, SandboxQuery};
pub use request::{
    BackendChoice, CreateRequest, DEFAULT_IDLE_TIMEOUT, DEFAULT_MEMORY_CAP, DEFAULT_RETENTION,
    EngineOptions, ExecRequest, Lease, Program, SessionRequest, Stdin, WorkspaceRequest,
};
pub use sandbox::{Isolation, Sandbox, SandboxState, Workspace};
pub use scope::Scope;
pub use secret::Secret;
pub use secrets::{SecretInfo, SecretSources, Secrets};
pub use session::Session;
pub use snapshot::{NewSnapshot, Snapshot, SnapshotQuery, Snapshots};
pub use template::TemplateInfo;
pub use tenants::{Counts, Quotas, Tenant, TenantUsage, Tenants};
pub use tools::{MAX_TOOL_ARGUMENTS, MAX_TOOL_RESULT, ToolCall, ToolFailure, ToolHost};
pub use volume::{DEFAULT_VOLUME_TARGET, VolumeRequest};
pub use webhooks::{NewWebhook, Webhook, Webhooks};
