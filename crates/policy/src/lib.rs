//! What a sandbox may do: types, parsing, validation, matching.
//!
//! Pure: no I/O, no processes, no knowledge of backends. Whatever a caller typed becomes one of these types or an
//! [`Invalid`] that names the value, the reason and the remedy; code behind this crate never sees an unchecked string.

#![forbid(unsafe_code)]

pub mod archive;
pub mod document;
pub mod environment;
pub mod identity;
mod invalid;
pub mod json_schema;
pub mod limits;
pub mod mounts;
pub mod network;
mod number;
pub mod programs;
pub mod scan;
mod secret;
pub mod template;

pub use environment::Environment;
pub use identity::{ProcessId, SandboxId, SandboxName, TenantId, UserSpec};
pub use invalid::{Invalid, shown};
pub use limits::{Asked, Limits};
pub use mounts::{Access, MountSpec, WorkspaceMode, WorkspaceSpec};
pub use network::{HostPattern, NetworkMode, NetworkPolicy};
pub use programs::Programs;
pub use secret::{SecretName, SecretValue};
pub use template::{Family, TemplateSpec};
