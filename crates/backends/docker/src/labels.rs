//! What ties containers to this installation.
//!
//! A container's name follows from the installation's and the sandbox's, so that no two have the same; its labels are
//! looked at before anything is done to it.

use std::collections::HashMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use belljar_policy::SandboxId;

const INSTALLATION: &str = "belljar.installation";
const SANDBOX: &str = "belljar.sandbox";
/// Images that were made with programs of the network and of the infrastructure left out.
pub(crate) const HARDENED: &str = "belljar.hardened";

/// The file that keeps the installation's name.
const FILE: &str = "docker-installation";

/// Which installation this is, on whatever engine.
#[derive(Clone, Debug)]
pub(crate) struct Installation(String);

impl Installation {
    /// The one of this state directory, made up if it has none yet.
    pub(crate) fn of(state_dir: &Path) -> io::Result<Self> {
        let path = state_dir.join(FILE);
        let made: String = random().iter().map(|byte| format!("{byte:02x}")).collect();
        let mut options = OpenOptions::new();
        match options.write(true).create_new(true).mode(0o600).open(&path) {
            Ok(mut file) => file.write_all(made.as_bytes())?,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
        let kept = fs::read_to_string(&path)?;
        if kept.len() == made.len() && kept.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Ok(Self(kept));
        }
        // Somebody was killed while writing it: nothing has that name yet.
        fs::write(&path, &made)?;
        Ok(Self(made))
    }

    /// Whether this state directory ever had one.
    pub(crate) fn exists(state_dir: &Path) -> bool {
        state_dir.join(FILE).exists()
    }

    pub(crate) fn container(&self, id: &SandboxId) -> String {
        format!("belljar-{}-{id}", self.0)
    }

    /// For what belongs to no sandbox.
    pub(crate) fn label(&self) -> HashMap<String, String> {
        HashMap::from([(INSTALLATION.to_owned(), self.0.clone())])
    }

    pub(crate) fn labels(&self, id: &SandboxId) -> HashMap<String, String> {
        let mut labels = self.label();
        labels.insert(SANDBOX.to_owned(), id.as_str().to_owned());
        labels
    }

    /// What the engine is asked for, so that it never tells of any other container.
    pub(crate) fn filter(&self) -> HashMap<String, Vec<String>> {
        HashMap::from([("label".to_owned(), vec![format!("{INSTALLATION}={}", self.0)])])
    }

    /// Whose container it is, if it is one of this installation.
    pub(crate) fn sandbox(&self, labels: Option<&HashMap<String, String>>) -> Option<SandboxId> {
        let labels = labels?;
        if labels.get(INSTALLATION) != Some(&self.0) {
            return None;
        }
        SandboxId::parse(labels.get(SANDBOX)?).ok()
    }
}

fn random() -> [u8; 8] {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(std::process::id()).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installation_keeps_its_name_and_knows_its_own() {
        let directory = tempfile::tempdir().unwrap();
        let first = Installation::of(directory.path()).unwrap();
        let again = Installation::of(directory.path()).unwrap();
        assert_eq!(first.0, again.0);
        let other = Installation::of(tempfile::tempdir().unwrap().path()).unwrap();
        let id = SandboxId::from_random("conf", &[7; 16]).unwrap();
        let labels = first.labels(&id);
        assert_eq!(again.sandbox(Some(&labels)), Some(id.clone()));
        assert_eq!(other.sandbox(Some(&labels)), None);
        assert_ne!(first.container(&id), other.container(&id));
        fs::write(directory.path().join(FILE), "half").unwrap();
        assert_ne!(Installation::of(directory.path()).unwrap().0, "half");
    }
}
