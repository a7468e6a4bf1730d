//! Locks between processes that share a state directory.
//!
//! A lock is an flock on a file: the kernel releases it when its holder dies, however that happens, which is what
//! tells recovery that nobody is at work any more. A holder may remove the file while it holds the lock; whoever
//! waited for the removed file notices and starts over on the new one, so two holders never coexist.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};

/// Transitions of a sandbox take milliseconds, so the first look comes soon.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// An exclusive lock, held until dropped.
#[derive(Debug)]
pub(crate) struct FileLock {
    file: File,
    path: PathBuf,
}

impl FileLock {
    /// Takes the lock if nobody holds it.
    pub(crate) fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let file = open(path)?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            }
            if is_current(&file, path)? {
                return Ok(Some(Self { file, path: path.to_owned() }));
            }
        }
    }

    /// Takes the lock if its file exists and nobody holds it; `Ok(None)` otherwise.
    pub(crate) fn try_acquire_existing(path: &Path) -> io::Result<Option<Self>> {
        if path.try_exists()? { Self::try_acquire(path) } else { Ok(None) }
    }

    /// Takes the lock, waiting for its holder up to `patience`; `Ok(None)` when that runs out.
    ///
    /// Looks again and again rather than blocking a thread in the kernel, so that a caller can give up and a runtime
    /// can shut down.
    pub(crate) async fn acquire(path: &Path, patience: Duration) -> io::Result<Option<Self>> {
        let deadline = Instant::now() + patience;
        let mut pause = FIRST_PAUSE;
        loop {
            if let Some(lock) = Self::try_acquire(path)? {
                return Ok(Some(lock));
            }
            if Instant::now() >= deadline {
                return Ok(None);
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Removes the file and releases the lock, in this order.
    pub(crate) fn remove(self) -> io::Result<()> {
        match std::fs::remove_file(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => {
                drop(self.file);
                Ok(())
            }
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Whether the locked file is still the one that `path` names.
fn is_current(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let held = file.metadata()?;
    match std::fs::symlink_metadata(path) {
        Ok(named) => Ok(named.ino() == held.ino() && named.dev() == held.dev()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_taker_is_refused_until_the_first_lets_go() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let first = FileLock::try_acquire(&path).unwrap().unwrap();
        assert!(FileLock::try_acquire(&path).unwrap().is_none());
        drop(first);
        assert!(FileLock::try_acquire(&path).unwrap().is_some());
    }

    #[tokio::test]
    async fn waiter_for_a_removed_file_gets_the_new_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.lock");
        let first = FileLock::try_acquire(&path).unwrap().unwrap();
        let waiter = tokio::spawn({
            let path = path.clone();
            async move { FileLock::acquire(&path, Duration::from_secs(30)).await.unwrap().unwrap() }
        });
        tokio::task::yield_now().await;
        first.remove().unwrap();
        let second = waiter.await.unwrap();
        assert!(is_current(&second.file, &path).unwrap());
        assert!(FileLock::try_acquire(&path).unwrap().is_none());
    }
}
