//! The places in a state directory.
//!
//! ```text
//! belljar.db                      the store                     sandboxes/<id>/    the local backend's
//! processes/<id>/log.*            output of a process           templates/         unpacked templates
//! sessions/<tenant>.<name>.lock   held while a session is used  trash/             on its way out
//! sessions/<token>.engine         held by an engine that owns   audit.*            who did what
//! snapshots/<tenant>/<id>.json    what a snapshot is            volumes/<tenant>/  what outlives sandboxes
//! snapshots/<tenant>/blobs/       what snapshots are made of    secrets.key        seals the secrets in the store
//! network/<id>/                   what a sandbox wanted to reach
//! ```

use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use belljar_codes::Code;
use belljar_policy::{ProcessId, SandboxId, TenantId};

use crate::{Error, Result};

const DIRECTORIES: [&str; 5] = ["processes", "sandboxes", "sessions", "templates", "trash"];

#[derive(Clone, Debug)]
pub(crate) struct StateDirectory {
    root: PathBuf,
}

impl StateDirectory {
    /// Opens the directory, making it (for its owner only) where it is missing.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let fail = |source| {
            let error = Error::state("open the state directory", path, source);
            match error.remedy() {
                Some(_) => error,
                None => error.with_remedy("set BELLJAR_STATE_DIR to a directory that can be used"),
            }
        };
        let mut builder = DirBuilder::new();
        builder.recursive(true).mode(0o700);
        builder.create(path).map_err(fail)?;
        let root = path.canonicalize().map_err(fail)?;
        let metadata = root.metadata().map_err(fail)?;
        let me = rustix::process::geteuid().as_raw();
        if metadata.uid() != me {
            return Err(Error::new(
                Code::StateFailed,
                format!("the state directory `{}` belongs to another user", root.display()),
            )
            .with_remedy("set BELLJAR_STATE_DIR to a directory of your own"));
        }
        // Whoever can write here can replace sockets and records.
        if metadata.permissions().mode() & 0o077 != 0 {
            let private = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(&root, private).map_err(fail)?;
        }
        for name in DIRECTORIES {
            let path = root.join(name);
            if !path.is_dir() {
                builder.create(&path).map_err(|source| Error::state("make", &path, source))?;
            }
        }
        Ok(Self { root })
    }

    pub(crate) fn root(&self) -> &Path {
        &self.root
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.root.join("belljar.db")
    }

    pub(crate) fn sessions(&self) -> PathBuf {
        self.root.join("sessions")
    }

    pub(crate) fn session_lock(&self, tenant: &TenantId, name: &str) -> PathBuf {
        self.root.join(format!("sessions/{tenant}.{name}.lock"))
    }

    pub(crate) fn ensure_lock(&self, id: &SandboxId) -> PathBuf {
        self.root.join(format!("sessions/{id}.ensure"))
    }

    /// Held by the engine that has the gate of a sandbox.
    pub(crate) fn gate_lock(&self, id: &SandboxId) -> PathBuf {
        self.root.join(format!("sessions/{id}.gate"))
    }

    /// What a sandbox trusts, if it has an authority of its own.
    pub(crate) fn trust(&self, id: &SandboxId) -> PathBuf {
        self.root.join(format!("trust/{id}"))
    }

    /// The network logs of sandboxes.
    pub(crate) fn network(&self) -> PathBuf {
        self.root.join("network")
    }

    pub(crate) fn processes(&self) -> PathBuf {
        self.root.join("processes")
    }

    pub(crate) fn process(&self, id: &ProcessId) -> PathBuf {
        self.root.join(format!("processes/{id}"))
    }

    pub(crate) fn snapshots(&self) -> PathBuf {
        self.root.join("snapshots")
    }

    pub(crate) fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_private_even_if_it_was_not() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/state");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        let state = StateDirectory::open(&path).unwrap();
        assert_eq!(state.root().metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert!(state.processes().is_dir());
    }

    #[test]
    fn a_file_in_the_way_is_an_error_with_a_code() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = StateDirectory::open(file.path()).unwrap_err();
        assert_eq!(error.code(), Code::StateFailed);
    }
}
