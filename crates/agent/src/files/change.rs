//! Changes to the tree of files: directories, moves, removal, modes.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use belljar_protocol::MAX_CHUNK;
use belljar_protocol::v1::{ChangeMode, MakeDirectory, MakeLink, Move, Remove};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, RenameFlags, chmod, mkdir, renameat_with, stat,
    symlink, unlinkat,
};
use rustix::io::Errno;

use super::list::open_directory;
use super::read::{CAREFULLY, require_regular};
use super::write::write_all;
use crate::failure::{Problem, Result};

const DEFAULT_PERMISSIONS: u32 = 0o755;

/// Directories below each other that a removal descends, each with an open descriptor.
const DEEPEST: usize = 512;

pub(super) fn make_directory(request: &MakeDirectory) -> Result {
    let path = request.path.as_slice();
    let permissions = match request.permissions {
        0 => DEFAULT_PERMISSIONS,
        permissions => permissions & 0o7777,
    };
    if request.parents {
        make_parents(path)?;
    }
    match mkdir(path, Mode::from_raw_mode(permissions)) {
        Err(Errno::EXIST) if request.parents && is_directory(path) => Ok(()),
        other => other.map_err(|errno| Problem::file("mkdir", path, errno)),
    }
}

/// Makes every directory above the last component.
pub(super) fn make_parents(path: &[u8]) -> Result {
    for (index, _) in path.iter().enumerate().filter(|(index, byte)| **byte == b'/' && *index > 0) {
        let parent = path.get(..index).unwrap_or_default();
        match mkdir(parent, Mode::from_raw_mode(DEFAULT_PERMISSIONS)) {
            Ok(()) => {}
            Err(_) if is_directory(parent) => {}
            Err(errno) => return Err(Problem::file("mkdir", parent, errno)),
        }
    }
    Ok(())
}

fn is_directory(path: &[u8]) -> bool {
    stat(path).is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir())
}

pub(super) fn move_file(request: &Move) -> Result {
    match rename(&request.from, &request.to, request.replace) {
        Err(Errno::XDEV) => move_across(request),
        other => other.map_err(|errno| {
            let concerned = if errno == Errno::EXIST { &request.to } else { &request.from };
            Problem::file("rename", concerned, errno)
        }),
    }
}

fn rename(from: &[u8], to: &[u8], replace: bool) -> Result<(), Errno> {
    let flags = if replace { RenameFlags::empty() } else { RenameFlags::NOREPLACE };
    renameat_with(CWD, from, CWD, to, flags)
}

/// Moves a regular file to another file system: a complete copy under a name of its own, then the final name.
fn move_across(request: &Move) -> Result {
    let (from, to) = (request.from.as_slice(), request.to.as_slice());
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | CAREFULLY;
    let source = rustix::fs::open(from, flags, Mode::empty())
        .map_err(|errno| Problem::file("open", from, errno))?;
    if require_regular(&source, from).is_err() {
        return Err(Problem::file("rename", from, Errno::XDEV));
    }
    let mut temporary = to.to_vec();
    temporary.extend(format!(".moving-{}", rustix::process::getpid().as_raw_nonzero()).bytes());
    let moved = copy(&source, &temporary)
        .and_then(|()| rename(&temporary, to, request.replace))
        .map_err(|errno| Problem::file("rename", to, errno));
    if moved.is_err() {
        let _ = unlinkat(CWD, temporary.as_slice(), AtFlags::empty());
        return moved;
    }
    unlinkat(CWD, from, AtFlags::empty()).map_err(|errno| Problem::file("remove", from, errno))
}

fn copy(source: &OwnedFd, to: &[u8]) -> Result<(), Errno> {
    let stat = rustix::fs::fstat(source)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let target = rustix::fs::open(to, flags, Mode::from_raw_mode(stat.st_mode & 0o7777))?;
    let mut buffer = vec![0; MAX_CHUNK];
    loop {
        match rustix::io::read(source, &mut buffer[..])? {
            0 => return Ok(()),
            size => write_all(&target, buffer.get(..size).unwrap_or_default())?,
        }
    }
}

pub(super) fn change_mode(request: &ChangeMode) -> Result {
    let mode = Mode::from_raw_mode(request.permissions & 0o7777);
    chmod(request.path.as_slice(), mode)
        .map_err(|errno| Problem::file("chmod", &request.path, errno))
}

pub(super) fn make_link(request: &MakeLink) -> Result {
    symlink(request.target.as_slice(), request.path.as_slice())
        .map_err(|errno| Problem::file("link", &request.path, errno))
}

pub(super) fn remove(request: &Remove) -> Result {
    let path = request.path.as_slice();
    let failed = |errno| Problem::file("remove", path, errno);
    match unlinkat(CWD, path, AtFlags::empty()) {
        // What unlinking a directory gives, on Linux and by the standard.
        Err(Errno::ISDIR | Errno::PERM) => {}
        other => return other.map_err(failed),
    }
    if request.recursive {
        let directory = open_directory(CWD, path, OFlags::NOFOLLOW).map_err(failed)?;
        empty(&directory, path, 0)?;
    }
    unlinkat(CWD, path, AtFlags::REMOVEDIR).map_err(failed)
}

/// Removes everything in a directory. Links are removed, never followed.
fn empty(directory: &OwnedFd, path: &[u8], depth: usize) -> Result {
    if depth > DEEPEST {
        return Err(Problem::new("too-deep", "too many directories in each other")
            .at("remove")
            .about(path));
    }
    loop {
        let names = some_names(directory).map_err(|errno| Problem::file("list", path, errno))?;
        if names.is_empty() {
            return Ok(());
        }
        for name in names {
            let shown = [path, b"/", &name].concat();
            remove_entry(directory, &name, &shown, depth)?;
        }
    }
}

fn remove_entry(directory: &OwnedFd, name: &[u8], shown: &[u8], depth: usize) -> Result {
    let failed = |errno| Problem::file("remove", shown, errno);
    match unlinkat(directory, name, AtFlags::empty()) {
        // Someone else removes the same things.
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(failed(errno)),
    }
    let inner = open_directory(directory, name, OFlags::NOFOLLOW).map_err(failed)?;
    empty(&inner, shown, depth + 1)?;
    drop(inner);
    match unlinkat(directory, name, AtFlags::REMOVEDIR) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(failed(errno)),
    }
}

/// The first names of a directory, one buffer full; none if it is empty.
fn some_names(directory: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
    rustix::fs::seek(&directory, rustix::fs::SeekFrom::Start(0))?;
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut listing = RawDir::new(&directory, &mut space);
    let mut names = Vec::new();
    while let Some(entry) = listing.next() {
        let name = entry?.file_name().to_bytes().to_vec();
        if !matches!(name.as_slice(), b"." | b"..") {
            names.push(name);
        }
        if listing.is_buffer_empty() && !names.is_empty() {
            break;
        }
    }
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn removes_a_tree_but_not_where_its_links_lead() {
        let top = std::env::temp_dir().join(format!("belljar-remove-{}", std::process::id()));
        let kept = top.join("kept");
        let gone = top.join("gone");
        std::fs::create_dir_all(gone.join("a/b/c")).unwrap();
        std::fs::create_dir_all(&kept).unwrap();
        std::fs::write(kept.join("file"), b"x").unwrap();
        for number in 0..500 {
            std::fs::write(gone.join(format!("a/long-name-of-file-{number}")), b"x").unwrap();
        }
        std::os::unix::fs::symlink(&kept, gone.join("a/link")).unwrap();
        let path = gone.to_str().unwrap().as_bytes().to_vec();
        assert!(remove(&Remove { path: path.clone(), recursive: false }).is_err());
        remove(&Remove { path, recursive: true }).unwrap();
        assert!(!gone.exists());
        assert!(kept.join("file").exists());
        std::fs::remove_dir_all(top).unwrap();
    }
}
