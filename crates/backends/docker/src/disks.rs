//! Free space in the work directories of a container on this host, as the container itself has them.
//!
//! They are mounts that the workload cannot replace; even so no link is followed, and what is not in memory is not the
//! sandbox's own disk and does not count.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags, ResolveFlags};

use crate::limits::WORK_DIRECTORIES;

/// What the kernel calls a file system in memory.
const IN_MEMORY: u64 = 0x0102_1994;

/// Of the fullest work directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Free {
    pub(crate) bytes: u64,
    pub(crate) inodes: u64,
}

/// `None` where there is no such directory. `root`: the container's root directory.
pub(crate) fn free(root: &OwnedFd) -> Option<Free> {
    let all = WORK_DIRECTORIES.iter().filter_map(|(path, _)| free_in(root, path));
    all.reduce(|one, other| Free {
        bytes: one.bytes.min(other.bytes),
        inodes: one.inodes.min(other.inodes),
    })
}

fn free_in(root: &OwnedFd, path: &str) -> Option<Free> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_SYMLINKS;
    let directory = rustix::fs::openat2(root, path, flags, Mode::empty(), resolve).ok()?;
    let found = rustix::fs::fstatfs(&directory).ok()?;
    let number = |number: i64| u64::try_from(number).unwrap_or(0);
    (number(found.f_type) == IN_MEMORY)
        .then(|| Free { bytes: found.f_bavail * number(found.f_bsize), inodes: found.f_ffree })
}
