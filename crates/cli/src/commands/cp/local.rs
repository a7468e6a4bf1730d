//! This machine's side: packing a directory, saving a file, and where what a sandbox sent goes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};

use super::unpack::leads_out;

/// Writes everything below `directory` as a tar archive, links as links. What a sandbox would refuse is left out: how many.
pub(super) fn pack(directory: &Path, to: &mut dyn Write) -> io::Result<u64> {
    let mut builder = tar::Builder::new(to);
    builder.follow_symlinks(false);
    let left_out = append(&mut builder, directory, Path::new(""), 0)?;
    builder.finish()?;
    Ok(left_out)
}

fn append(
    builder: &mut tar::Builder<&mut dyn Write>,
    directory: &Path,
    prefix: &Path,
    depth: usize,
) -> io::Result<u64> {
    let mut entries: Vec<_> = std::fs::read_dir(directory)?.collect::<Result<_, _>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut left_out = 0;
    for entry in entries {
        let (path, name) = (entry.path(), prefix.join(entry.file_name()));
        let kind = entry.file_type()?;
        if kind.is_dir() {
            builder.append_path_with_name(&path, &name)?;
            left_out += append(builder, &path, &name, depth + 1)?;
        } else if kind.is_file()
            || kind.is_symlink() && !leads_out(path.read_link()?.as_os_str().as_bytes(), depth)
        {
            builder.append_path_with_name(&path, &name)?;
        } else {
            left_out += 1;
        }
    }
    Ok(left_out)
}

/// Where something goes: a directory that was named by whoever copies, and a name in it, which may be a sandbox's idea or
/// a sandbox's link by now.
#[derive(Debug)]
pub(super) struct Target {
    directory: PathBuf,
    /// Empty: the directory itself.
    name: OsString,
}

impl Target {
    /// Below `named` where that is a directory; it keeps its name then.
    pub(super) fn new(named: PathBuf, source: &str) -> Self {
        if named.is_dir() {
            let name = Path::new(source).file_name().unwrap_or_default().to_owned();
            return Self { directory: named, name };
        }
        match (named.parent(), named.file_name()) {
            (Some(parent), Some(name)) => {
                let here = parent.as_os_str().is_empty();
                let directory = if here { Path::new(".") } else { parent };
                Self { directory: directory.to_owned(), name: name.to_owned() }
            }
            _ => Self { directory: named, name: OsString::new() },
        }
    }

    /// A directory, made with those above it where it is missing.
    pub(super) fn make_directory(&self) -> io::Result<OwnedFd> {
        std::fs::create_dir_all(&self.directory)?;
        let directory = self.open()?;
        match self.name.is_empty() {
            true => Ok(directory),
            false => enter(&directory, &self.name, Mode::from_raw_mode(0o777))
                .map_err(|error| about(&self.path(), &error)),
        }
    }

    fn open(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        openat(CWD, &self.directory, flags, Mode::empty())
            .map_err(|errno| about(&self.directory, &errno.into()))
    }

    fn path(&self) -> PathBuf {
        self.directory.join(&self.name)
    }
}

/// A directory in a directory, made where it is missing. Never through a link.
pub(super) fn enter(directory: impl AsFd, name: &OsStr, mode: Mode) -> io::Result<OwnedFd> {
    match rustix::fs::mkdirat(&directory, name, mode) {
        Ok(()) | Err(rustix::io::Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty()).map_err(|errno| match errno {
        rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => {
            io::Error::other("a file or a link is where a directory should be; remove it first")
        }
        errno => errno.into(),
    })
}

pub(super) fn about(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("`{}`: {error}", path.display()))
}

/// Where links are the system's own: `/dev/stdout`, `/dev/fd/3`. Not `/dev/shm`, where everybody makes them.
const SPECIAL: [&str; 4] = ["/dev", "/dev/fd", "/dev/pts", "/proc/self/fd"];

fn is_special(directory: &Path) -> bool {
    SPECIAL.iter().any(|special| directory == Path::new(special))
}

/// Writes `content` under another name first, so that a file is there whole or not at all. A link in its place gives way: a
/// sandbox may have made it.
pub(super) fn save(content: &mut dyn Read, target: &Target, mode: u32) -> io::Result<u64> {
    if is_special(&target.directory) {
        return io::copy(content, &mut File::create(target.path())?);
    }
    let (directory, name) = (target.open()?, &target.name);
    let found = statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
    let kind = found.map(|found| FileType::from_raw_mode(found.st_mode));
    if kind.is_some_and(|kind| kind.is_fifo() || kind.is_char_device() || kind.is_block_device()) {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&directory, name, flags, Mode::empty())?);
        return io::copy(content, &mut file);
    }
    let unfinished = unfinished(name);
    let mut file = create(&directory, &unfinished, mode)?;
    let copied = io::copy(content, &mut file).and_then(|bytes| {
        renameat(&directory, &unfinished, &directory, name)?;
        Ok(bytes)
    });
    if copied.is_err() {
        let _ = unlinkat(&directory, &unfinished, AtFlags::empty());
    }
    copied.map_err(|error| about(&target.path(), &error))
}

/// A file that was not there before, with no more than plain permissions.
pub(super) fn create(directory: impl AsFd, name: &OsStr, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mode = Mode::from_raw_mode(mode & 0o777 | 0o600);
    Ok(File::from(openat(directory, name, flags, mode)?))
}

fn unfinished(name: &OsStr) -> OsString {
    let mut unfinished = OsString::from(".");
    unfinished.push(name);
    unfinished.push(format!(".{}", std::process::id()));
    unfinished
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn target(path: PathBuf) -> Target {
        Target::new(path, "/output/file")
    }

    #[test]
    fn what_leads_out_is_not_packed() {
        let place = tempfile::tempdir().unwrap();
        std::fs::create_dir(place.path().join("a")).unwrap();
        std::fs::write(place.path().join("file"), "x").unwrap();
        symlink("../file", place.path().join("a/inside")).unwrap();
        symlink("/etc/passwd", place.path().join("a/absolute")).unwrap();
        symlink("../../x", place.path().join("a/above")).unwrap();
        let mut archive = Vec::new();
        assert_eq!(pack(place.path(), &mut archive).unwrap(), 2);
        let mut archive = tar::Archive::new(archive.as_slice());
        let paths: Vec<_> =
            archive.entries().unwrap().map(|e| e.unwrap().path().unwrap().into_owned()).collect();
        assert_eq!(paths, ["a/", "a/inside", "file"].map(PathBuf::from));
    }

    #[test]
    fn a_file_is_there_whole_or_not_at_all() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("gone"))
            }
        }
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        assert_eq!(save(&mut b"whole".as_slice(), &target(path.clone()), 0o644).unwrap(), 5);
        assert!(save(&mut Broken, &target(path.clone()), 0o644).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole");
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_link_gives_way_and_is_not_followed() {
        let place = tempfile::tempdir().unwrap();
        let (precious, into) = (place.path().join("precious"), place.path().join("into"));
        std::fs::write(&precious, "precious").unwrap();
        std::fs::create_dir(&into).unwrap();
        for named in [into.clone(), into.join("file")] {
            symlink(&precious, into.join("file")).unwrap();
            save(&mut b"new".as_slice(), &target(named), 0o644).unwrap();
            assert_eq!(std::fs::read_to_string(&precious).unwrap(), "precious");
            assert_eq!(std::fs::read_to_string(into.join("file")).unwrap(), "new");
            std::fs::remove_file(into.join("file")).unwrap();
        }
        // The twin: a directory that was named is entered, by whatever way it was named.
        symlink(&into, place.path().join("way")).unwrap();
        save(&mut b"new".as_slice(), &target(place.path().join("way")), 0o644).unwrap();
        assert_eq!(std::fs::read_to_string(into.join("file")).unwrap(), "new");
        assert_eq!(save(&mut b"new".as_slice(), &target("/dev/null".into()), 0o644).unwrap(), 3);
        for (directory, special) in [("/dev", true), ("/dev/fd/", true), ("/dev/shm", false)] {
            assert_eq!(is_special(Path::new(directory)), special, "{directory}");
        }
    }
}
