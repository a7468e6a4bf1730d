//! Host directories that a sandbox gets to see.
//!
//! Three questions, answered separately: what was written (`MountSpec`, `WorkspaceSpec`), whether the place inside the
//! sandbox can be used (`target`, `mask`), and whether the host directory may be shown at all (`protected_source`). Opening
//! and resolving the directory is the caller's part; paths here are only text.

mod mask;
mod protected;
mod spec;
mod target;

pub use mask::{MAX_MASKS, check_mask};
pub use protected::protected_source;
pub use spec::{MountSpec, WORKSPACE_TARGET, WorkspaceSpec};
pub use target::check_target;

use serde::{Deserialize, Serialize};

/// What the sandbox may do below a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Access {
    ReadOnly,
    ReadWrite,
}

impl Access {
    /// `ro` or `rw`, as in a mount argument.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReadOnly => "ro",
            Self::ReadWrite => "rw",
        }
    }
}

/// How the workspace directory is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkspaceMode {
    /// Changes go to the host directory.
    Bind,
    /// No changes.
    BindReadOnly,
    /// Changes go to a layer of the sandbox; the host directory stays as it is until they are applied.
    Overlay,
}

impl WorkspaceMode {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bind => "bind",
            Self::BindReadOnly => "bind-read-only",
            Self::Overlay => "overlay",
        }
    }

    #[must_use]
    pub const fn access(self) -> Access {
        match self {
            Self::BindReadOnly => Access::ReadOnly,
            Self::Bind | Self::Overlay => Access::ReadWrite,
        }
    }
}
