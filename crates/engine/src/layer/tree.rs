//! The host's workspace directory, reached only beneath its own descriptor.
//!
//! Every path is resolved by the kernel with RESOLVE_BENEATH, NO_SYMLINKS, NO_MAGICLINKS and NO_XDEV: nothing that a
//! sandbox named, and no link that somebody puts in the way meanwhile, leads out.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use belljar_codes::Code;
use rustix::fs::{
    AtFlags, Dir, FileType, Gid, Mode, OFlags, ResolveFlags, Stat, Timespec, Timestamps, Uid,
    chownat, fchmod, fchown, futimens, mkdirat, openat, openat2, readlinkat, renameat, statat,
    symlinkat, unlinkat,
};
use rustix::io::Errno;

use crate::files::FileKind;
use crate::{Error, Result};

const BENEATH: ResolveFlags = ResolveFlags::BENEATH
    .union(ResolveFlags::NO_SYMLINKS)
    .union(ResolveFlags::NO_MAGICLINKS)
    .union(ResolveFlags::NO_XDEV);

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Permissions that may come out of a sandbox: no set-user-id, no set-group-id, no sticky bit.
const PERMISSIONS: u32 = 0o777;

#[derive(Debug)]
pub(super) struct Tree {
    path: PathBuf,
    root: OwnedFd,
    /// New files belong to whoever owns the directory; only root can give them away.
    gives_away: bool,
}

/// Something that is in the host's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) kind: FileKind,
    pub(super) size: u64,
    pub(super) mode: u32,
    pub(super) modified: SystemTime,
    pub(super) link_target: Option<PathBuf>,
    owner: (u32, u32),
}

/// A directory and a name in it: the last step of a path, not yet taken.
pub(super) struct Place {
    directory: OwnedFd,
    name: OsString,
}

impl Tree {
    pub(super) fn new(path: &Path, descriptor: &OwnedFd) -> Result<Self> {
        let root = openat(descriptor, ".", DIRECTORY, Mode::empty())
            .map_err(|errno| fail("open", path, errno))?;
        let gives_away = rustix::process::geteuid().is_root();
        Ok(Self { path: path.to_owned(), root, gives_away })
    }

    /// What is at `path`; `None` where there is nothing, or where something other than a directory is on the way.
    pub(super) fn entry(&self, path: &Path) -> Result<Option<Entry>> {
        let Some(place) = self.place(path)? else { return Ok(None) };
        place.entry().map_err(|errno| self.fail("look at", path, errno))
    }

    /// Whether a link, a mount or a file is where a directory should be.
    pub(super) fn is_blocked(&self, path: &Path) -> bool {
        let parent = path.parent().unwrap_or(Path::new(""));
        let blocked = |errno| matches!(errno, Errno::LOOP | Errno::XDEV | Errno::NOTDIR);
        self.open_directory(parent).is_err_and(blocked)
    }

    /// The names in a directory.
    pub(super) fn names(&self, path: &Path) -> Result<Vec<OsString>> {
        let directory =
            self.open_directory(path).map_err(|errno| self.fail("list", path, errno))?;
        names(&directory).map_err(|errno| self.fail("list", path, errno))
    }

    /// Whether anything at or below `path` was changed after `since`.
    pub(super) fn changed_since(&self, path: &Path, since: SystemTime) -> Result<bool> {
        let Some(entry) = self.entry(path)? else { return Ok(false) };
        if entry.kind != FileKind::Directory {
            return Ok(entry.modified > since);
        }
        for name in self.names(path)? {
            if self.changed_since(&path.join(name), since)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where `path` is or would be; `None` if its parent is not a directory beneath the root.
    pub(super) fn place(&self, path: &Path) -> Result<Option<Place>> {
        check_relative(path)?;
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(outside(path));
        };
        match self.open_directory(parent) {
            Ok(directory) => Ok(Some(Place { directory, name: name.to_owned() })),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(None),
            Err(errno) => Err(self.fail("open", parent, errno)),
        }
    }

    pub(super) fn remove(&self, path: &Path) -> Result<()> {
        let Some(place) = self.place(path)? else { return Ok(()) };
        remove(&place.directory, &place.name).map_err(|errno| self.fail("remove", path, errno))
    }

    /// Makes a directory, or gives one that is there its permissions. Anything else in its place goes.
    pub(super) fn make_directory(&self, path: &Path, mode: u32) -> Result<()> {
        let place = self.required_place(path)?;
        let act = || {
            let mut is_new = true;
            match place.entry()? {
                Some(entry) if entry.kind == FileKind::Directory => is_new = false,
                Some(_) => unlinkat(&place.directory, &place.name, AtFlags::empty())?,
                None => {}
            }
            if is_new {
                mkdirat(&place.directory, &place.name, Mode::from_raw_mode(0o700))?;
                self.give(&place, None)?;
            }
            let directory = openat(&place.directory, &place.name, DIRECTORY, Mode::empty())?;
            fchmod(&directory, Mode::from_raw_mode(mode & PERMISSIONS))
        };
        act().map_err(|errno| self.fail("make", path, errno))
    }

    pub(super) fn make_symlink(&self, path: &Path, target: &Path, temporary: &str) -> Result<()> {
        let place = self.required_place(path)?;
        let act = || {
            remove(&place.directory, OsStr::new(temporary))?;
            symlinkat(target, &place.directory, temporary)?;
            let fresh = place.sibling(temporary)?;
            self.give(&fresh, place.entry()?.as_ref())?;
            place.replace_with(temporary)
        };
        act().map_err(|errno| self.fail("make", path, errno))
    }

    /// A new file beside `path`, to be filled and then put in its place with [`Tree::finish_file`].
    pub(super) fn begin_file(&self, path: &Path, temporary: &str) -> Result<File> {
        let place = self.required_place(path)?;
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let act = || {
            remove(&place.directory, OsStr::new(temporary))?;
            openat(&place.directory, temporary, flags, Mode::from_raw_mode(0o600))
        };
        act().map(File::from).map_err(|errno| self.fail("write", path, errno))
    }

    pub(super) fn finish_file(
        &self,
        path: &Path,
        temporary: &str,
        file: &File,
        mode: u32,
        modified: SystemTime,
    ) -> Result<()> {
        let place = self.required_place(path)?;
        let act = || {
            if self.gives_away {
                let owner = self.owner_for(&place, place.entry()?.as_ref())?;
                fchown(file, Some(owner.0), Some(owner.1))?;
            }
            fchmod(file, Mode::from_raw_mode(mode & PERMISSIONS))?;
            let time = timespec(modified.min(SystemTime::now()));
            futimens(file, &Timestamps { last_access: time, last_modification: time })?;
            place.replace_with(temporary)
        };
        act().map_err(|errno| self.fail("write", path, errno))
    }

    /// Takes away a file that was begun and will not be finished.
    pub(super) fn abandon_file(&self, path: &Path, temporary: &str) {
        if let Ok(Some(place)) = self.place(path) {
            let _ = unlinkat(&place.directory, temporary, AtFlags::empty());
        }
    }

    fn required_place(&self, path: &Path) -> Result<Place> {
        self.place(path)?.ok_or_else(|| {
            Error::new(
                Code::LayerConflict,
                format!("`{}` is in a place that is no directory any more", self.show(path)),
            )
        })
    }

    fn open_directory(&self, path: &Path) -> rustix::io::Result<OwnedFd> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        loop {
            match openat2(&self.root, path, DIRECTORY, Mode::empty(), BENEATH) {
                // The kernel could not tell whether something was moved out of the way meanwhile.
                Err(Errno::AGAIN) => {}
                other => return other,
            }
        }
    }

    /// Gives what was just made to its owner.
    fn give(&self, place: &Place, before: Option<&Entry>) -> rustix::io::Result<()> {
        if !self.gives_away {
            return Ok(());
        }
        let (uid, gid) = self.owner_for(place, before)?;
        chownat(&place.directory, &place.name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Whoever owned what was there before, or else whoever owns the directory.
    fn owner_for(&self, place: &Place, before: Option<&Entry>) -> rustix::io::Result<(Uid, Gid)> {
        let (uid, gid) = match before {
            Some(entry) => entry.owner,
            None => {
                let stat = rustix::fs::fstat(&place.directory)?;
                (stat.st_uid, stat.st_gid)
            }
        };
        Ok((Uid::from_raw(uid), Gid::from_raw(gid)))
    }

    fn fail(&self, action: &str, path: &Path, errno: Errno) -> Error {
        fail(action, &self.path.join(path), errno)
    }

    fn show(&self, path: &Path) -> String {
        belljar_policy::shown(&self.path.join(path).to_string_lossy())
    }
}

impl Place {
    fn entry(&self) -> rustix::io::Result<Option<Entry>> {
        match statat(&self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Entry::new(&self.directory, &self.name, &stat).map(Some),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    fn sibling(&self, name: &str) -> rustix::io::Result<Place> {
        let directory = openat(&self.directory, ".", DIRECTORY, Mode::empty())?;
        Ok(Place { directory, name: name.into() })
    }

    /// Moves a file of the same directory here. A directory that is in the way goes first.
    fn replace_with(&self, temporary: &str) -> rustix::io::Result<()> {
        if self.entry()?.is_some_and(|entry| entry.kind == FileKind::Directory) {
            remove(&self.directory, &self.name)?;
        }
        renameat(&self.directory, temporary, &self.directory, &self.name)
    }
}

impl Entry {
    fn new(directory: &OwnedFd, name: &OsStr, stat: &Stat) -> rustix::io::Result<Self> {
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => FileKind::Directory,
            FileType::Symlink => FileKind::Symlink,
            FileType::Fifo => FileKind::Fifo,
            FileType::Socket => FileKind::Socket,
            FileType::CharacterDevice => FileKind::CharacterDevice,
            FileType::BlockDevice => FileKind::BlockDevice,
            FileType::RegularFile | FileType::Unknown => FileKind::File,
        };
        let link_target = match kind {
            FileKind::Symlink => {
                let target = readlinkat(directory, name, Vec::new())?;
                Some(OsString::from_vec(target.into_bytes()).into())
            }
            _ => None,
        };
        let seconds = u64::try_from(stat.st_mtime).unwrap_or(0);
        let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
        Ok(Self {
            kind,
            size: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode & PERMISSIONS,
            modified: UNIX_EPOCH + Duration::new(seconds, nanoseconds),
            link_target,
            owner: (stat.st_uid, stat.st_gid),
        })
    }
}

/// Removes a name and everything below it. What is not there is fine.
fn remove(directory: &impl AsFd, name: &OsStr) -> rustix::io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(errno),
    }
    let inner = openat(directory, name, DIRECTORY, Mode::empty())?;
    for name in names(&inner)? {
        remove(&inner, &name)?;
    }
    unlinkat(directory, name, AtFlags::REMOVEDIR)
}

fn names(directory: &OwnedFd) -> rustix::io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let name = entry?.file_name().to_bytes().to_vec();
        if name != b"." && name != b".." {
            names.push(OsString::from_vec(name));
        }
    }
    Ok(names)
}

/// A path as a sandbox may name it: below the root, every part a plain name.
pub(super) fn check_relative(path: &Path) -> Result<()> {
    let plain = |component: Component<'_>| matches!(component, Component::Normal(_));
    let bytes = path.as_os_str().as_bytes();
    let odd = bytes.is_empty() || bytes.contains(&0) || bytes.starts_with(b"/");
    // `components` hides a `.` in the middle; the kernel would not mind, but no honest listing has it.
    let parts = bytes.split(|byte| *byte == b'/').count();
    if odd || !path.components().all(plain) || path.components().count() != parts {
        return Err(outside(path));
    }
    Ok(())
}

fn outside(path: &Path) -> Error {
    let shown = belljar_policy::shown(&path.to_string_lossy());
    Error::new(Code::AgentFailed, format!("the layer has a path that is none: `{shown}`"))
}

fn fail(action: &str, path: &Path, errno: Errno) -> Error {
    let code = match errno {
        Errno::LOOP | Errno::XDEV | Errno::NOTDIR => Code::LayerConflict,
        Errno::NOSPC | Errno::DQUOT => Code::HostExhausted,
        _ => Code::MountSourceUnusable,
    };
    let shown = belljar_policy::shown(&path.to_string_lossy());
    Error::new(code, format!("{action} `{shown}` in the workspace"))
        .with_source(std::io::Error::from(errno))
}

fn timespec(time: SystemTime) -> Timespec {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timespec {
        tv_sec: i64::try_from(since.as_secs()).unwrap_or(0),
        tv_nsec: since.subsec_nanos().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mounts::open_directory;
    use belljar_policy::Access;

    fn tree(path: &Path) -> Tree {
        let directory = open_directory(path, Access::ReadOnly).unwrap();
        Tree::new(path, &directory.descriptor).unwrap()
    }

    #[test]
    fn odd_paths_are_refused() {
        for path in ["", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/./b", "a/", "a\0b"] {
            assert!(check_relative(Path::new(path)).is_err(), "{path:?}");
        }
        for path in ["a", "a/b", "...", ".hidden", "a b\n"] {
            assert!(check_relative(Path::new(path)).is_ok(), "{path:?}");
        }
    }

    #[test]
    fn links_are_never_followed() {
        let outside = tempfile::tempdir().unwrap();
        std::fs::write(outside.path().join("secret"), "secret").unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink(outside.path(), directory.path().join("out")).unwrap();
        let tree = tree(directory.path());

        assert_eq!(tree.entry(Path::new("out/secret")).unwrap(), None);
        assert!(tree.is_blocked(Path::new("out/secret")));
        let error = tree.begin_file(Path::new("out/new"), "tmp").unwrap_err();
        assert_eq!(error.code(), Code::LayerConflict);
        tree.remove(Path::new("out/secret")).unwrap();
        tree.remove(Path::new("out")).unwrap();
        assert_eq!(std::fs::read(outside.path().join("secret")).unwrap(), b"secret");
        assert!(!directory.path().join("out").exists());
    }

    #[test]
    fn files_take_the_place_of_whatever_was_there() {
        use std::io::Write;
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(directory.path().join("x/deep/er")).unwrap();
        std::fs::write(directory.path().join("x/deep/er/file"), "").unwrap();
        let tree = tree(directory.path());
        let modified = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let mut file = tree.begin_file(Path::new("x"), "tmp").unwrap();
        file.write_all(b"now a file").unwrap();
        tree.finish_file(Path::new("x"), "tmp", &file, 0o4755, modified).unwrap();
        let metadata = std::fs::metadata(directory.path().join("x")).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, 0o755);
        assert_eq!(metadata.modified().unwrap(), modified);
        tree.make_directory(Path::new("x"), 0o750).unwrap();
        tree.make_symlink(Path::new("x/link"), Path::new("/etc/passwd"), "tmp").unwrap();
        let entry = tree.entry(Path::new("x/link")).unwrap().unwrap();
        assert_eq!(entry.link_target, Some("/etc/passwd".into()));
        assert_eq!(tree.names(Path::new("x")).unwrap(), ["link"]);
    }
}
