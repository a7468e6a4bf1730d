//! The name of a Unix socket in the file system: takes it, and gives it back.
//!
//! Only a socket that nobody listens on any more makes room for ours. Anything else is somebody's: it is refused and left
//! as it is. Who may connect is not decided here.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use belljar_codes::Code;
use belljar_socket::{near, parent};
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::net::UnixListener;

use crate::hand_over::HandOver;
use crate::problem::{Problem, Result};

/// A name that leads to a socket of ours. Dropped, it is gone, unless it leads to something else by then.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: a name alone does not tell whose it is.
    identity: (u64, u64),
}

impl SocketFile {
    /// Listens where the lock of a state directory keeps every other server away: a socket there is what an ended one left.
    pub(crate) fn bind_guarded(path: &Path) -> Result<(Self, UnixListener)> {
        // What a server left that was killed on its way is nobody's either, and does not pile up.
        let fresh = path.with_extension("new");
        let _ = std::fs::remove_file(&fresh);
        Self::bind_and(path, fresh, |fresh| {
            // The lock does not keep servers of other state directories from naming this one.
            let _others_wait = HandOver::begin(parent(path))?;
            match found_at(path)? {
                None | Some(Found::Socket) => Ok(std::fs::rename(fresh, path)?),
                Some(Found::Other(what)) => Err(Unusable::Other(what)),
            }
        })
    }

    /// Listens where others may listen too.
    pub(crate) fn bind(path: &Path) -> Result<(Self, UnixListener)> {
        // A name that nobody has: nothing needs to be removed for it.
        let fresh = parent(path).join(format!(".belljar-{}", crate::random::id()));
        Self::bind_and(path, fresh, |fresh| {
            let _others_wait = HandOver::begin(parent(path))?;
            take_over(fresh, path, rename)
        })
    }

    /// Binds under another name first: whoever finds the socket can connect to it.
    fn bind_and(
        path: &Path,
        fresh: PathBuf,
        put: impl FnOnce(&Path) -> std::result::Result<(), Unusable>,
    ) -> Result<(Self, UnixListener)> {
        let bound = bind_as(fresh).and_then(|(mut bound, listener)| {
            put(&bound.path)?;
            bound.path = path.to_owned();
            Ok((bound, listener))
        });
        bound.map_err(|unusable| unusable.tell(path))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another server may take the name between the look and the removal. What stays is an abandoned socket at worst.
        let Ok(_others_wait) = HandOver::begin(parent(&self.path)) else { return };
        if identity(&self.path).is_ok_and(|found| found == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Whether two names lead to the same place, however they are written.
pub(crate) fn same_place(one: &Path, other: &Path) -> bool {
    let place =
        |path: &Path| Some((parent(path).canonicalize().ok()?, path.file_name()?.to_owned()));
    one == other || place(one).is_some_and(|one| place(other) == Some(one))
}

/// What is in the way of a socket.
enum Found {
    Socket,
    Other(&'static str),
}

/// Why a name cannot be had.
enum Unusable {
    /// Somebody answers there, or may.
    Listening,
    Other(&'static str),
    Failed(std::io::Error),
}

impl Unusable {
    fn tell(self, path: &Path) -> Problem {
        let shown = path.display();
        match self {
            Self::Listening => {
                Problem::new(Code::ServerRunning, format!("another server listens on `{shown}`"))
                    .with_remedy("stop that one, or choose another path with `--socket`")
            }
            Self::Other(what) => {
                Problem::invalid(format!("`{shown}` is {what}, which a socket would replace"))
                    .with_remedy("move it away, or choose another path with `--socket`")
            }
            Self::Failed(error) => {
                Problem::new(Code::StateFailed, format!("cannot listen on `{shown}`"))
                    .caused_by(&error)
                    .with_remedy("choose another path with `--socket`")
            }
        }
    }
}

impl From<std::io::Error> for Unusable {
    fn from(error: std::io::Error) -> Self {
        Self::Failed(error)
    }
}

impl From<Errno> for Unusable {
    fn from(error: Errno) -> Self {
        Self::Failed(error.into())
    }
}

fn bind_as(fresh: PathBuf) -> std::result::Result<(SocketFile, UnixListener), Unusable> {
    let (_directory, near) = near(&fresh)?;
    let listener = UnixListener::bind(near)?;
    let bound = SocketFile { identity: identity(&fresh)?, path: fresh };
    std::fs::set_permissions(&bound.path, std::fs::Permissions::from_mode(0o600))?;
    Ok((bound, listener))
}

/// Gives the socket `fresh` the name `path`, if that is free or leads to a socket that nobody listens on.
fn take_over(
    fresh: &Path,
    path: &Path,
    rename: impl Fn(&Path, &Path, RenameFlags) -> rustix::io::Result<()>,
) -> std::result::Result<(), Unusable> {
    match rename(fresh, path, RenameFlags::NOREPLACE) {
        // A second name is never put in the place of something either.
        Err(errno) if is_unknown(errno) => match std::fs::hard_link(fresh, path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            linked => return Ok(linked.and_then(|()| std::fs::remove_file(fresh))?),
        },
        Err(Errno::EXIST) => {}
        done => return Ok(done?),
    }
    refuse_used(path)?;
    // A program that does not wait its turn may have come between: what makes room is looked at again once nobody else can
    // find it.
    match rename(fresh, path, RenameFlags::EXCHANGE) {
        Err(errno) if is_unknown(errno) => return Ok(std::fs::rename(fresh, path)?),
        done => done?,
    }
    if let Err(unusable) = refuse_used(fresh) {
        rename(fresh, path, RenameFlags::EXCHANGE)?;
        return Err(unusable);
    }
    Ok(std::fs::remove_file(fresh)?)
}

fn rename(from: &Path, to: &Path, flags: RenameFlags) -> rustix::io::Result<()> {
    renameat_with(CWD, from, CWD, to, flags)
}

/// Whether a file system, or a kernel, does not know what it was asked for.
fn is_unknown(errno: Errno) -> bool {
    matches!(errno, Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP)
}

fn refuse_used(path: &Path) -> std::result::Result<(), Unusable> {
    match found_at(path)? {
        None => Ok(()),
        Some(Found::Other(what)) => Err(Unusable::Other(what)),
        Some(Found::Socket) if is_abandoned(path)? => Ok(()),
        Some(Found::Socket) => Err(Unusable::Listening),
    }
}

fn found_at(path: &Path) -> std::io::Result<Option<Found>> {
    let kind = match std::fs::symlink_metadata(path) {
        Ok(metadata) => metadata.file_type(),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    Ok(Some(match kind {
        kind if kind.is_socket() => Found::Socket,
        kind if kind.is_file() => Found::Other("a file"),
        kind if kind.is_dir() => Found::Other("a directory"),
        kind if kind.is_symlink() => Found::Other("a link"),
        _ => Found::Other("a device or pipe"),
    }))
}

/// Whether the kernel says that nobody listens. Anything else, such as no permission to ask, may be a server.
fn is_abandoned(path: &Path) -> std::io::Result<bool> {
    let (_directory, near) = near(path)?;
    // A server whose queue is full would let us wait.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    Ok(connect(&socket, &SocketAddrUnix::new(near)?) == Err(Errno::CONNREFUSED))
}

fn identity(path: &Path) -> std::io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|found| (found.dev(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What an ended server leaves: std does not remove the name.
    fn abandon(path: &Path) {
        drop(std::os::unix::net::UnixListener::bind(path).unwrap());
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[tokio::test]
    async fn a_free_name_and_an_abandoned_socket_are_taken_and_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        for before in [None, Some(abandon)] {
            if let Some(before) = before {
                before(&path);
            }
            let (file, _listener) = SocketFile::bind(&path).unwrap();
            std::os::unix::net::UnixStream::connect(&path).unwrap();
            assert_eq!(path.metadata().unwrap().mode() & 0o777, 0o600);
            assert_eq!(names(directory.path()), ["socket"]);
            drop(file);
            assert_eq!(names(directory.path()), [""; 0]);
        }
    }

    #[tokio::test]
    async fn what_is_no_socket_stays() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("file"), "precious").unwrap();
        std::fs::create_dir(at("directory")).unwrap();
        abandon(&at("abandoned"));
        std::os::unix::fs::symlink(at("abandoned"), at("link")).unwrap();
        for (name, what) in [("file", "a file"), ("directory", "a directory"), ("link", "a link")] {
            for bind in [SocketFile::bind, SocketFile::bind_guarded] {
                let problem = bind(&at(name)).unwrap_err();
                assert_eq!(problem.code, Code::InvalidArgument);
                assert!(problem.message.contains(&format!("/{name}` is {what}")), "{problem}");
                assert!(problem.remedy.is_some());
            }
        }
        assert_eq!(std::fs::read_to_string(at("file")).unwrap(), "precious");
        assert!(at("directory").is_dir() && at("link").is_symlink());
        assert_eq!(names(directory.path()).len(), 4);
    }

    #[tokio::test]
    async fn a_socket_that_somebody_listens_on_stays_theirs() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let theirs = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let problem = SocketFile::bind(&path).unwrap_err();
        assert_eq!(problem.code, Code::ServerRunning);
        let _client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        theirs.accept().unwrap();
        assert_eq!(names(directory.path()), ["socket"]);
        // In a state directory the lock says that they are about to end.
        SocketFile::bind_guarded(&path).unwrap();
    }

    #[tokio::test]
    async fn a_name_that_became_another_ones_is_not_given_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let (file, _listener) = SocketFile::bind(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, "another").unwrap();
        drop(file);
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "another");
    }

    /// Many that found the same abandoned socket: one of them has it in the end, and the others are told.
    #[tokio::test]
    async fn of_many_at_once_one_has_the_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let runtime = tokio::runtime::Handle::current();
        for _ in 0..50 {
            abandon(&path);
            let attempts: Vec<_> = std::thread::scope(|scope| {
                let attempt = || {
                    let _entered = runtime.enter();
                    SocketFile::bind(&path)
                };
                let threads: Vec<_> = (0..8).map(|_| scope.spawn(attempt)).collect();
                threads.into_iter().map(|thread| thread.join().unwrap()).collect()
            });
            let kept = attempts
                .iter()
                .flatten()
                .filter(|(file, _)| identity(&path).is_ok_and(|found| found == file.identity));
            assert_eq!(kept.count(), 1);
            assert_eq!(attempts.iter().flatten().count(), 1);
            assert_eq!(names(directory.path()), ["socket"]);
            drop(attempts);
        }
    }

    /// What three can do to each other takes many attempts to see; that they wait for each other does not.
    #[tokio::test]
    async fn a_name_is_neither_taken_nor_given_back_in_another_ones_turn() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let runtime = tokio::runtime::Handle::current();
        let (tell, told) = std::sync::mpsc::channel();
        let too_early = std::time::Duration::from_millis(50);
        std::thread::scope(|scope| {
            let turn = HandOver::begin(directory.path()).unwrap();
            scope.spawn(|| {
                let _entered = runtime.enter();
                tell.send(Some(SocketFile::bind(&path).unwrap())).unwrap();
            });
            // It listens already, and has no name yet.
            while names(directory.path()).is_empty() {
                std::thread::yield_now();
            }
            assert!(told.recv_timeout(too_early).is_err());
            assert!(!path.exists());
            drop(turn);
            let bound = told.recv().unwrap();
            assert!(path.exists());

            let turn = HandOver::begin(directory.path()).unwrap();
            let tell = tell.clone();
            scope.spawn(move || {
                drop(bound);
                tell.send(None).unwrap();
            });
            assert!(told.recv_timeout(too_early).is_err());
            assert!(path.exists());
            drop(turn);
            told.recv().unwrap();
            assert!(!path.exists());
        });
    }

    /// Whoever was given the name has it until it gives it back, however many come and go.
    #[tokio::test]
    async fn a_name_that_is_given_back_is_not_taken_from_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let runtime = tokio::runtime::Handle::current();
        let turns = std::thread::scope(|scope| {
            let turn = || {
                let _entered = runtime.enter();
                let bound = (0..200).filter_map(|_| SocketFile::bind(&path).ok());
                let kept = bound.map(|(file, listener)| {
                    let found = identity(&path);
                    assert!(found.is_ok_and(|found| found == file.identity), "it was taken");
                    // As a server ends: it no longer listens, and then gives the name back.
                    drop(listener);
                });
                kept.count()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(turn)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<usize>()
        });
        assert!(turns > 0);
        assert_eq!(names(directory.path()), [""; 0]);
    }

    #[tokio::test]
    async fn a_file_system_without_exchange_does() {
        let plain = |from: &Path, to: &Path, flags: RenameFlags| match flags.is_empty() {
            true => rename(from, to, flags),
            false => Err(Errno::INVAL),
        };
        let directory = tempfile::tempdir().unwrap();
        let (fresh, path) = (directory.path().join("fresh"), directory.path().join("socket"));
        for before in [None, Some(abandon)] {
            if let Some(before) = before {
                before(&path);
            }
            let (mut bound, _listener) = bind_as(fresh.clone()).ok().unwrap();
            assert!(take_over(&fresh, &path, plain).is_ok());
            bound.path.clone_from(&path);
            std::os::unix::net::UnixStream::connect(&path).unwrap();
            assert_eq!(names(directory.path()), ["socket"]);
        }
        let _theirs = std::os::unix::net::UnixListener::bind(&path).unwrap();
        let (_bound, _listener) = bind_as(fresh.clone()).ok().unwrap();
        assert!(matches!(take_over(&fresh, &path, plain), Err(Unusable::Listening)));
        std::os::unix::net::UnixStream::connect(&path).unwrap();
    }
}
