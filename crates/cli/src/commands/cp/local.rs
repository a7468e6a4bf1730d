//! This machine's side: saving a file, and where what a sandbox sent goes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};

use crate::output::Inert;

/// Where something goes: a directory that was named by whoever copies, and a name in it, which may be a sandbox's idea or
/// a sandbox's link by now.
#[derive(Debug)]
pub(super) struct Target {
    directory: PathBuf,
    /// Whether that is made where it is missing: it was named with a slash at its end.
    make: bool,
    /// Empty: the directory itself.
    name: OsString,
}

impl Target {
    /// Below `named` where that is a directory, or has to be one for its slash; it keeps its name then.
    pub(super) fn new(named: PathBuf, source: &str) -> Self {
        let make = named.as_os_str().as_bytes().ends_with(b"/");
        if make || named.is_dir() {
            let name = Path::new(source).file_name().unwrap_or_default().to_owned();
            return Self { directory: named, make, name };
        }
        match (named.parent(), named.file_name()) {
            (Some(parent), Some(name)) => {
                let here = parent.as_os_str().is_empty();
                let directory = if here { Path::new(".") } else { parent };
                Self { directory: directory.to_owned(), make, name: name.to_owned() }
            }
            _ => Self { directory: named, make, name: OsString::new() },
        }
    }

    /// A directory, made with those above it where it is missing.
    pub(super) fn make_directory(&self) -> io::Result<OwnedFd> {
        std::fs::create_dir_all(&self.directory).map_err(|error| about(&self.directory, &error))?;
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

/// Says what an error is about. A sandbox may have chosen the name.
pub(super) fn about(path: &Path, error: &io::Error) -> io::Error {
    let shown = Inert::line(path.as_os_str().as_bytes());
    io::Error::new(error.kind(), format!("`{shown}`: {error}"))
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
    if target.make {
        std::fs::create_dir_all(&target.directory)
            .map_err(|error| about(&target.directory, &error))?;
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

    #[test]
    fn a_slash_at_the_end_means_a_directory() {
        let place = tempfile::tempdir().unwrap();
        let typed = |name: &str| PathBuf::from(format!("{}/{name}", place.path().display()));
        save(&mut b"x".as_slice(), &target(typed("new/deep/")), 0o644).unwrap();
        assert_eq!(std::fs::read_to_string(typed("new/deep/file")).unwrap(), "x");
        Target::new(typed("other/"), "/output/tree").make_directory().unwrap();
        assert!(typed("other/tree").is_dir());
        // The twins: without a slash it is the file's own name, and a file is no directory.
        save(&mut b"x".as_slice(), &target(typed("plain")), 0o644).unwrap();
        assert_eq!(std::fs::read_to_string(typed("plain")).unwrap(), "x");
        let refused = save(&mut b"y".as_slice(), &target(typed("plain/")), 0o644).unwrap_err();
        assert!(refused.to_string().contains("plain/`: "), "{refused}");
        assert_eq!(std::fs::read_to_string(typed("plain")).unwrap(), "x");
    }

    #[test]
    fn names_in_errors_are_inert() {
        let gone = || io::Error::other("gone");
        let told = |name: &[u8]| about(Path::new(OsStr::from_bytes(name)), &gone()).to_string();
        assert_eq!(told(b"a\x1b]0;x\x07\n\rerror: b"), "`a␛]0;x␇\u{fffd}\u{fffd}error: b`: gone");
        assert_eq!(told("dir/große Datei".as_bytes()), "`dir/große Datei`: gone");
    }
}
