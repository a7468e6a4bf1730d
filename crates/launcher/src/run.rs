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

const PRIVATE: Mode = Mode::RWXU;

/// How often the link is looked for and made.
const ATTEMPTS: usize = 8;

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
        // Others who look at the same time remove and make the same.
        let target = (0..ATTEMPTS).find_map(|_| match find(&state, name) {
            Ok(None) => make(&state, name, privileged).transpose(),
            found => found.transpose(),
        });
        let target = target.ok_or(Errno::AGAIN)??;
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
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

pub(crate) fn open_directory(at: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
    Ok(openat(at, name, DIRECTORY, Mode::empty())?)
}

fn make_directory(at: &OwnedFd, path: &Path) -> io::Result<()> {
    match mkdirat(at, path, PRIVATE) {
        Ok(()) | Err(Errno::EXIST) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Where the link leads, if that is a place of ours: what is in memory is gone after a reboot, and the copy of a state
/// directory has a link to the original's.
fn find(state: &OwnedFd, name: &str) -> io::Result<Option<PathBuf>> {
    let target = match rustix::fs::readlinkat(state, LINK, Vec::new()) {
        Ok(target) => PathBuf::from(OsString::from_vec(target.into_bytes())),
        Err(Errno::NOENT) => return Ok(None),
        Err(errno) => return Err(errno.into()),
    };
    if target == Path::new(HERE) {
        return Ok(Some(target));
    }
    if target.file_name().is_some_and(|last| last == name) {
        match openat(state, &target, DIRECTORY, Mode::empty()) {
            Ok(directory) if is_own(&directory)? => {
                // There may be sandboxes in it, so it is made private rather than given up.
                rustix::fs::fchmod(&directory, PRIVATE)?;
                return Ok(Some(target));
            }
            Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    match unlinkat(state, LINK, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// `None`: somebody else has made the link meanwhile.
fn make(state: &OwnedFd, name: &str, privileged: bool) -> io::Result<Option<PathBuf>> {
    let in_memory = IN_MEMORY.into_iter().filter(|_| privileged);
    let place = in_memory.map(Path::new).find_map(|base| make_in_memory(base, name));
    let place = place.unwrap_or_else(|| PathBuf::from(HERE));
    match rustix::fs::symlinkat(&place, state, LINK) {
        Ok(()) => Ok(Some(place)),
        Err(Errno::EXIST) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn make_in_memory(base: &Path, name: &str) -> Option<PathBuf> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let base_directory = rustix::fs::open(base, flags, Mode::empty()).ok()?;
    if !is_in_memory(&base_directory).ok()? {
        return None;
    }
    make_directory(&base_directory, Path::new(name)).ok()?;
    // Somebody else may have made it, where everybody can.
    let directory = open_directory(&base_directory, name).ok()?;
    let closed = rustix::fs::fstat(&directory).ok()?.st_mode & 0o077 == 0;
    (closed && is_own(&directory).ok()?).then(|| base.join(name))
}

/// Whether it is this user's, as the kernel says and not a file system that somebody has mounted there.
fn is_own(directory: &OwnedFd) -> io::Result<bool> {
    let own = rustix::fs::fstat(directory)?.st_uid == rustix::process::geteuid().as_raw();
    Ok(own && is_in_memory(directory)?)
}

fn is_in_memory(directory: &OwnedFd) -> io::Result<bool> {
    Ok(rustix::fs::fstatfs(directory)?.f_type == TMPFS_MAGIC)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    struct State(tempfile::TempDir);

    impl State {
        fn new() -> Self {
            let state = tempfile::tempdir().unwrap();
            fs::create_dir(state.path().join("launchers")).unwrap();
            Self(state)
        }

        fn path(&self) -> &Path {
            self.0.path()
        }

        /// A name that no other test has.
        fn name(&self) -> String {
            let name = self.path().file_name().unwrap().to_str().unwrap();
            format!("belljar-test{}", name.replace('.', "-"))
        }

        fn open(&self, privileged: bool) -> Run {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = rustix::fs::open(self.path(), flags, Mode::empty()).unwrap();
            Run::open(directory, self.path(), &self.name(), privileged).unwrap()
        }

        fn link(&self) -> Option<PathBuf> {
            fs::read_link(self.path().join(LINK)).ok()
        }
    }

    #[test]
    fn without_privilege_it_is_the_state_directory() {
        let state = State::new();
        let run = state.open(false);
        assert_eq!((run.path.as_path(), state.link()), (state.path(), Some(HERE.into())));
        fs::create_dir(state.path().join("run/sandboxes/one")).unwrap();
        run.leave();
        assert_eq!(state.link(), Some(HERE.into()));
        fs::remove_dir(state.path().join("sandboxes/one")).unwrap();
        state.open(false).leave();
        assert_eq!(state.link(), None);
    }

    #[test]
    fn it_is_in_memory_until_the_last_who_uses_it_leaves() {
        let state = State::new();
        let (first, second) = (state.open(true), state.open(true));
        assert!(IN_MEMORY.iter().any(|base| first.path.starts_with(base)), "{:?}", first.path);
        assert_eq!(first.path, second.path);
        assert_eq!(first.path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        first.leave();
        assert!(second.path.join("sandboxes").is_dir());
        fs::create_dir(second.path.join("sandboxes/one")).unwrap();
        second.leave();
        assert!(state.path().join("run/sandboxes/one").is_dir());
        let third = state.open(true);
        assert_eq!(third.path, first.path);
        fs::remove_dir(third.path.join("sandboxes/one")).unwrap();
        drop((first, second));
        third.leave();
        assert_eq!((state.link(), third.path.exists()), (None, false));
    }

    #[test]
    fn what_is_gone_or_another_installations_is_made_anew() {
        let other = State::new();
        let others = other.open(true);
        let state = State::new();
        let gone = format!("/dev/shm/{}", state.name());
        for target in [gone.as_str(), others.path.to_str().unwrap()] {
            symlink(target, state.path().join(LINK)).unwrap();
            let run = state.open(true);
            assert!(run.path.is_dir() && run.in_memory);
            assert_ne!(run.path, others.path);
            run.leave();
            assert_eq!(state.link(), None);
        }
        assert!(others.path.join("sandboxes").is_dir());
        others.leave();
    }

    #[test]
    fn a_place_in_use_that_was_opened_up_is_closed_again() {
        let state = State::new();
        let run = state.open(true);
        let mode = || run.path.metadata().unwrap().permissions().mode() & 0o777;
        fs::set_permissions(&run.path, fs::Permissions::from_mode(0o755)).unwrap();
        let second = state.open(true);
        assert_eq!((&second.path, mode()), (&run.path, 0o700));
        second.leave();
        run.leave();
    }

    #[test]
    fn a_place_that_others_can_write_to_is_not_used() {
        let state = State::new();
        let run = state.open(true);
        let path = run.path.clone();
        run.leave();
        drop(run);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        let run = state.open(true);
        assert_ne!(run.path, path);
        run.leave();
        fs::remove_dir(&path).unwrap();
    }
}
