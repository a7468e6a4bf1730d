//! Lets one server at a time change what the names in a directory lead to.
//!
//! The lock is on the directory itself, so that no file is left behind, and ends with whoever holds it. Whoever may read
//! the directory can hold it too: nobody waits for long, and nobody is kept from a name that way.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock};
use rustix::io::Errno;

/// A server has the lock for some system calls.
const PATIENCE: Duration = Duration::from_secs(5);
const BETWEEN_TRIES: Duration = Duration::from_millis(2);

/// The directory's, until it is dropped.
#[derive(Debug)]
pub(crate) struct HandOver {
    /// None where the directory, or its file system, cannot be locked, or somebody does not let go of it. Names are compared
    /// all the same.
    lock: Option<OwnedFd>,
}

impl HandOver {
    /// Blocks its thread until then.
    pub(crate) fn begin(directory: &Path) -> io::Result<Self> {
        let begun = Self::begin_within(directory, PATIENCE)?;
        if begun.lock.is_none() {
            tracing::debug!(?directory, "names in it change without a lock");
        }
        Ok(begun)
    }

    fn begin_within(directory: &Path, patience: Duration) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(directory, flags, Mode::empty()) {
            Ok(directory) => directory,
            // It may be written and entered, but not read.
            Err(Errno::ACCESS) => return Ok(Self { lock: None }),
            Err(errno) => return Err(errno.into()),
        };
        let begun = Instant::now();
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { lock: Some(directory) }),
                Err(Errno::WOULDBLOCK) if begun.elapsed() < patience => {
                    std::thread::sleep(BETWEEN_TRIES);
                }
                Err(Errno::INTR) => {}
                // No server has it for so long. Some file systems lock only files that are open for writing, or nothing.
                Err(_) => return Ok(Self { lock: None }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_and_nobody_waits_for_ever() {
        let place = tempfile::tempdir().unwrap();
        let other = tempfile::tempdir().unwrap();
        let first = HandOver::begin(place.path()).unwrap();
        assert!(first.lock.is_some());
        let is_locked =
            |place: &Path| HandOver::begin_within(place, Duration::ZERO).unwrap().lock.is_some();
        assert!(!is_locked(place.path()));
        assert!(is_locked(other.path()));
        drop(first);
        assert!(is_locked(place.path()));
        HandOver::begin(&place.path().join("missing")).unwrap_err();
    }
}
