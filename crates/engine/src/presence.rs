//! Telling whether the process that did something is still alive.
//!
//! An engine that owns something (an ephemeral sandbox, the attendance of a process) notes its token beside it and holds
//! a lock on a file of that name. Whoever finds the token later tries the lock: if it can be taken, the owner is gone,
//! and the kernel is the witness. One file for the whole life of an engine: making a file for each sandbox would be the
//! most expensive part of making one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::lock::FileLock;
use crate::{Error, Result, random};

const PATIENCE_MS: u32 = 5000;

#[derive(Debug)]
pub(crate) struct Presence {
    directory: PathBuf,
    token: String,
    /// `None` until this engine owns something.
    lock: Mutex<Option<FileLock>>,
}

impl Presence {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory, token: random::token(), lock: Mutex::default() }
    }

    /// The token to note, with the lock behind it.
    pub(crate) fn token(&self) -> Result<&str> {
        let mut lock = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        if lock.is_none() {
            let path = file(&self.directory, &self.token);
            *lock = Some(hold(&path).map_err(|e| Error::state("lock", &path, e))?);
        }
        Ok(&self.token)
    }

    /// Whether the engine that noted `token` is gone. One's own never is.
    pub(crate) fn is_gone(&self, token: &str) -> Result<bool> {
        if token == self.token {
            return Ok(false);
        }
        let path = file(&self.directory, token);
        match FileLock::try_acquire_existing(&path) {
            // It let its lock go, or it took its file away when it ended.
            Ok(Some(_)) => Ok(true),
            Ok(None) => path.try_exists().map(|exists| !exists),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
        .map_err(|source| Error::state("look at", &path, source))
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        let lock = self.lock.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(Err(error)) = lock.map(FileLock::remove) {
            tracing::debug!(%error, "a lock file was left behind");
        }
    }
}

/// Takes the lock. Whoever tidies up or asks whether we are gone holds it for a moment, never longer.
fn hold(path: &Path) -> io::Result<FileLock> {
    for _ in 0..PATIENCE_MS {
        if let Some(lock) = FileLock::try_acquire(path)? {
            return Ok(lock);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

fn file(directory: &Path, token: &str) -> PathBuf {
    directory.join(format!("{token}.engine"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gone_are_told_from_the_living() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let (mine, theirs) = (Presence::new(path.clone()), Presence::new(path.clone()));
        let token = theirs.token().unwrap().to_owned();
        assert!(!mine.is_gone(&token).unwrap());
        assert!(!theirs.is_gone(&token).unwrap());
        assert!(mine.is_gone("never").unwrap());
        drop(theirs);
        assert!(mine.is_gone(&token).unwrap());
        // Killed: the file stays, the lock does not.
        std::fs::write(path.join("killed.engine"), "").unwrap();
        assert!(mine.is_gone("killed").unwrap());
    }
}
