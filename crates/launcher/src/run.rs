//! Where the launcher keeps what ends with the machine: `run` in the state directory, a link.
//!
//! With privilege it leads to a directory on a file system in memory. Every sandbox makes and removes some files there, and
//! a disk's file system takes longer for each than all else that is done with them. An ordinary user has no such place that
//! outlives a session: then, and where none is in memory, `run` leads to the state directory itself.
//!
//! Launchers hold a shared lock on `launchers/`. Who can have it alone, when it ends, removes the place if nothing is in it.

use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags, flock, mkdirat, openat, unlinkat};
use rustix::io::Errno;

const LINK: &str = "run";
const HERE: &str = ".";

/// Root's own place first: in the other one everybody may make files, and fill it.
const IN_MEMORY: [&str; 2] = ["/run", "/dev/shm"];
const TMPFS_MAGIC: i64 = 0x0102_1994;

pub(crate) const DIRECTORIES: [&str; 5] = ["sandboxes", "ids", "owners", "hanging", "trash"];

/// A launcher's hold on the place.
pub(crate) struct Run {
    pub(crate) path: PathBuf,
    pub(crate) directory: OwnedFd,
    state: OwnedFd,
    lock: OwnedFd,
    in_memory: bool,
}

impl Run {
    /// Finds the place, or makes it. `name` is no other installation's.
    pub(crate) fn open(
        state: OwnedFd,
        path: &Path,
        name: &str,
        privileged: bool,
    ) -> io::Result<Self> {
        let lock = open_directory(&state, "launchers")?;
        flock(&lock, FlockOperation::LockShared)?;
        let found = find(&state)?;
        let target = match found {
            Some(target) => target,
            None => make(&state, name, privileged)?,
        };
        let in_memory = target != Path::new(HERE);
        let path = if in_memory { target } else { path.to_owned() };
        let directory = openat(&state, &path, DIRECTORY, Mode::empty())?;
        for name in DIRECTORIES {
            make_directory(&directory, Path::new(name))?;
        }
        Ok(Self { path, directory, state, lock, in_memory })
    }

    /// Removes the place if nothing is in it and nobody else uses it.
    pub(crate) fn leave(&self) {
        if flock(&self.lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return;
        }
        let empty = if self.in_memory {
            let remove = |name| unlinkat(&self.directory, name, AtFlags::REMOVEDIR).is_ok();
            // All that can go, so that what is left shows what is in the way.
            let removed = DIRECTORIES.map(remove);
            removed == [true; DIRECTORIES.len()] && std::fs::remove_dir(&self.path).is_ok()
        } else {
            let is_empty = |name| {
                std::fs::read_dir(self.path.join(name)).is_ok_and(|mut all| all.next().is_none())
            };
            DIRECTORIES.into_iter().all(is_empty)
        };
        if empty {
            let _ = unlinkat(&self.state, LINK, AtFlags::empty());
        }
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(crate) fn open_directory(at: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    Ok(openat(at, name, DIRECTORY, Mode::empty())?)
}

fn make_directory(at: &OwnedFd, path: &Path) -> io::Result<()> {
    match mkdirat(at, path, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Where the link leads, if it leads anywhere: what is in memory is gone after a reboot.
fn find(state: &OwnedFd) -> io::Result<Option<PathBuf>> {
    let target = match rustix::fs::readlinkat(state, LINK, Vec::new()) {
        Ok(target) => PathBuf::from(OsString::from_vec(target.into_bytes())),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    match openat(state, &target, DIRECTORY, Mode::empty()) {
        Ok(directory) if target == Path::new(HERE) || is_private(&directory)? => Ok(Some(target)),
        Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
            unlinkat(state, LINK, AtFlags::empty())?;
            Ok(None)
        }
        Err(errno) => Err(errno.into()),
    }
}

fn make(state: &OwnedFd, name: &str, privileged: bool) -> io::Result<PathBuf> {
    // What an earlier version has left running is in the state directory.
    let in_use = ["sandboxes", "hanging"]
        .into_iter()
        .any(|name| open_directory(state, name).is_ok_and(|directory| !is_empty(&directory)));
    let in_memory = IN_MEMORY.into_iter().filter(|_| privileged && !in_use);
    let place = in_memory.map(Path::new).find_map(|base| make_in_memory(base, name));
    let place = place.unwrap_or_else(|| PathBuf::from(HERE));
    match rustix::fs::symlinkat(&place, state, LINK) {
        Ok(()) => Ok(place),
        // Another launcher was faster, and has made the same.
        Err(Errno::EXIST) => find(state)?.ok_or_else(|| Errno::NOENT.into()),
        Err(errno) => Err(errno.into()),
    }
}

fn make_in_memory(base: &Path, name: &str) -> Option<PathBuf> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let base_directory = rustix::fs::open(base, flags, Mode::empty()).ok()?;
    if rustix::fs::fstatfs(&base_directory).ok()?.f_type as i64 != TMPFS_MAGIC {
        return None;
    }
    make_directory(&base_directory, Path::new(name)).ok()?;
    // Somebody else may have made it, where everybody can.
    let directory = open_directory(&base_directory, name).ok()?;
    is_private(&directory).ok()?.then(|| base.join(name))
}

fn is_private(directory: &OwnedFd) -> io::Result<bool> {
    let stat = rustix::fs::fstat(directory)?;
    Ok(stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o077 == 0)
}

fn is_empty(directory: &OwnedFd) -> bool {
    let Ok(entries) = rustix::fs::Dir::read_from(directory) else { return true };
    let names = entries.flatten();
    names.filter(|entry| !matches!(entry.file_name().to_bytes(), b"." | b"..")).count() == 0
}
