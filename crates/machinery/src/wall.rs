//! What encloses the sandboxes that the machinery makes.

use std::io;
use std::path::{Path, PathBuf};

use belljar_backend::IsolationClass;
use belljar_launcher::wire::RuntimeKind;

use crate::host_path::HostPath;

/// The last step of a start: what the launcher's child becomes once a root is assembled.
#[derive(Clone, Debug)]
pub enum Wall {
    /// The agent itself, behind this kernel's own mechanisms.
    Native,
    /// An OCI runtime, which puts the agent behind what it has.
    Runtime(Runtime),
}

/// A runtime that can be run.
#[derive(Clone, Debug)]
pub struct Runtime {
    pub kind: RuntimeKind,
    /// Where its program was found.
    pub path: PathBuf,
    pub(crate) program: HostPath,
}

impl Runtime {
    pub fn open(kind: RuntimeKind, path: &Path) -> io::Result<Self> {
        Ok(Self { kind, path: path.to_owned(), program: HostPath::open(path)? })
    }
}

impl Wall {
    /// The word for the backend that has it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Runtime(_) => "oci",
        }
    }

    pub(crate) fn runtime(&self) -> Option<&Runtime> {
        match self {
            Self::Native => None,
            Self::Runtime(runtime) => Some(runtime),
        }
    }

    /// How strong it is, by what really runs.
    #[must_use]
    pub fn class(&self) -> IsolationClass {
        if self.has_own_kernel() { IsolationClass::Kernel } else { IsolationClass::Namespace }
    }

    /// Whether system calls inside are answered by a kernel other than the host's.
    pub(crate) fn has_own_kernel(&self) -> bool {
        self.runtime().is_some_and(|runtime| runtime.kind.has_own_kernel())
    }
}
