//! Lets one server at a time change what the names in a directory lead to.
//!
//! The lock is on the directory itself, so that no file is left behind, and ends with whoever holds it. Whoever may read
//! the directory can hold it too: nobody waits for long.

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
    /// None where the directory, or its file system, cannot be locked. Names are compared all the same.
    _lock: Option<OwnedFd>,
}

impl HandOver {
    pub(crate) fn begin(directory: &Path) -> io::Result<Self> {
        Self::begin_within(directory, PATIENCE)
    }

    fn begin_within(directory: &Path, patience: Duration) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(directory, flags, Mode::empty()) {
            Ok(directory) => directory,
            // It may be written and entered, but not read.
            Err(Errno::ACCESS) => return Ok(Self { _lock: None }),
            Err(errno) => return Err(errno.into()),
        };
        let begun = Instant::now();
        loop {
            match flock(&directory, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _lock: Some(directory) }),
                Err(Errno::WOULDBLOCK) if begun.elapsed() < patience => {
                    std::thread::sleep(BETWEEN_TRIES);
                }
                Err(Errno::WOULDBLOCK) => {
                    return Err(io::Error::other("another program keeps its directory locked"));
                }
                Err(Errno::INTR) => {}
                // Some file systems lock only files that are open for writing, or nothing.
                Err(_) => return Ok(Self { _lock: None }),
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
        let refused = HandOver::begin_within(place.path(), Duration::ZERO).unwrap_err();
        assert!(refused.to_string().contains("locked"), "{refused}");
        HandOver::begin_within(other.path(), Duration::ZERO).unwrap();
        drop(first);
        HandOver::begin_within(place.path(), Duration::ZERO).unwrap();
        HandOver::begin(&place.path().join("missing")).unwrap_err();
    }
}
