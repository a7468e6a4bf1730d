//! This machine's side: saving a file, and where what a sandbox sent goes.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use belljar_policy::identity::random_text;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, fcntl_setfl, fstat, linkat, openat, renameat, statat,
    unlinkat,
};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

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
    /// Whether whoever copies wrote the name. Otherwise it is that of what is copied, and whatever has it here may be a
    /// sandbox's.
    typed: bool,
}

impl Target {
    /// Below `named` where that is a directory, or has to be one for its slash; it keeps its name then.
    pub(super) fn new(named: PathBuf, source: &str) -> Self {
        let make = named.as_os_str().as_bytes().ends_with(b"/");
        if make || named.is_dir() {
            let name = Path::new(source).file_name().unwrap_or_default().to_owned();
            return Self { directory: named, make, name, typed: false };
        }
        match (named.parent(), named.file_name()) {
            (Some(parent), Some(name)) => {
                let here = parent.as_os_str().is_empty();
                let directory = if here { Path::new(".") } else { parent };
                Self { directory: directory.to_owned(), make, name: name.to_owned(), typed: true }
            }
            _ => Self { directory: named, make, name: OsString::new(), typed: false },
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
        Ok(()) | Err(Errno::EXIST) => {}
        Err(errno) => return Err(errno.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(directory, name, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::LOOP | Errno::NOTDIR => {
            io::Error::other("a file or a link is where a directory should be; remove it first")
        }
        errno => errno.into(),
    })
}

/// Says what an error is about. A sandbox may have chosen the name, and what the error repeats.
pub(super) fn about(path: &Path, error: &io::Error) -> io::Error {
    let shown = Inert::line(path.as_os_str().as_bytes());
    let why = Inert::line(error.to_string().as_bytes());
    io::Error::new(error.kind(), format!("`{shown}`: {why}"))
}

/// Where links are the system's own: `/dev/stdout`, `/dev/fd/3`. Not `/dev/shm`, where everybody makes them.
const SPECIAL: [&str; 4] = ["/dev", "/dev/fd", "/dev/pts", "/proc/self/fd"];

fn is_special(directory: &Path) -> bool {
    SPECIAL.iter().any(|special| directory == Path::new(special))
}

/// Writes `content` to a file that gets its name at the end, so that it is there whole or not at all. A link in its place gives
/// way: a sandbox may have made it. So does a pipe or a device, unless it was named.
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
    if target.typed && kind.is_some_and(is_pipe_or_device) {
        let mut file =
            open_pipe_or_device(&directory, name).map_err(|error| about(&target.path(), &error))?;
        return io::copy(content, &mut file);
    }
    let unfinished = unfinished()?;
    let written = write_aside(content, &directory, &unfinished, mode).and_then(|bytes| {
        renameat(&directory, &unfinished, &directory, name)?;
        Ok(bytes)
    });
    if written.is_err() {
        let _ = unlinkat(&directory, &unfinished, AtFlags::empty());
    }
    written.map_err(|error| about(&target.path(), &error))
}

/// Writes a file that has a name of its own only when it is whole, where the file system can do that: of a copy that is
/// interrupted nothing is left.
fn write_aside(
    content: &mut dyn Read,
    directory: &OwnedFd,
    name: &OsStr,
    mode: u32,
) -> io::Result<u64> {
    let Some((mut file, itself)) = nameless(directory, mode) else {
        return io::copy(content, &mut create(directory, name, mode)?);
    };
    let bytes = io::copy(content, &mut file)?;
    linkat(CWD, itself, directory, name, AtFlags::SYMLINK_FOLLOW)?;
    Ok(bytes)
}

/// With the path by which it can get a name.
fn nameless(directory: &OwnedFd, mode: u32) -> Option<(File, String)> {
    let flags = OFlags::WRONLY | OFlags::TMPFILE | OFlags::CLOEXEC;
    let file = File::from(openat(directory, c".", flags, plain(mode)).ok()?);
    let itself = format!("/proc/self/fd/{}", file.as_raw_fd());
    // There may be no such file system.
    statat(CWD, &itself, AtFlags::empty()).ok()?;
    Some((file, itself))
}

/// A name that nobody else has, and no longer than one may be, whatever the file is called.
fn unfinished() -> io::Result<OsString> {
    let mut entropy = [0; 16];
    getrandom(&mut entropy, GetRandomFlags::empty())?;
    Ok(format!(".belljar-{}", random_text(&entropy)).into())
}

fn is_pipe_or_device(kind: FileType) -> bool {
    kind.is_fifo() || kind.is_char_device() || kind.is_block_device()
}

/// Opens what takes all that is written. A pipe that nobody reads would be waited for without end.
fn open_pipe_or_device(directory: &OwnedFd, name: &OsStr) -> io::Result<File> {
    let flags =
        OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat(directory, name, flags, Mode::empty()).map_err(|errno| match errno {
        Errno::NXIO => io::Error::other("nobody reads from this pipe; start its reader first"),
        errno => errno.into(),
    })?;
    if !is_pipe_or_device(FileType::from_raw_mode(fstat(&opened)?.st_mode)) {
        return Err(io::Error::other("it was replaced by something else; try again"));
    }
    fcntl_setfl(&opened, OFlags::empty())?;
    Ok(File::from(opened))
}

/// Opens what is to be sent, which is known from what was opened: its name may lead to something else by now. No pipe is waited
/// for, except where links are the system's own and the shell put one there.
pub(super) fn open_source(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = openat(CWD, path, flags, Mode::empty())?;
    let is_pipe = FileType::from_raw_mode(fstat(&opened)?.st_mode).is_fifo();
    if is_pipe && !path.parent().is_some_and(is_special) {
        return Err(io::Error::other("it is a pipe; `belljar cp - SANDBOX:PATH < PIPE` reads one"));
    }
    fcntl_setfl(&opened, OFlags::empty())?;
    Ok(File::from(opened))
}

/// A file that was not there before, with no more than plain permissions.
pub(super) fn create(directory: impl AsFd, name: &OsStr, mode: u32) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(File::from(openat(directory, name, flags, plain(mode))?))
}

fn plain(mode: u32) -> Mode {
    Mode::from_raw_mode(mode & 0o777 | 0o600)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

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
        let longest = place.path().join("x".repeat(255));
        save(&mut b"long".as_slice(), &target(longest.clone()), 0o640).unwrap();
        let saved = longest.metadata().unwrap();
        assert_eq!((saved.len(), saved.permissions().mode() & 0o777), (4, 0o640));
    }

    #[test]
    fn nothing_is_seen_of_a_file_before_it_is_whole() {
        struct Looking<'a>(&'a Path, bool);
        impl Read for Looking<'_> {
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                assert_eq!(std::fs::read_dir(self.0).unwrap().count(), 0);
                buffer[0] = b'x';
                Ok(usize::from(!std::mem::replace(&mut self.1, true)))
            }
        }
        // Of the file systems that cannot do this, no test runs on one.
        let place = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = place.path().join("file");
        save(&mut Looking(place.path(), false), &target(path.clone()), 0o644).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "x");
        let names: Vec<_> = std::fs::read_dir(place.path()).unwrap().collect();
        assert_eq!(names.len(), 1);
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

    fn make_pipe(path: &Path) {
        rustix::fs::mkfifoat(CWD, path, Mode::from_raw_mode(0o600)).unwrap();
    }

    #[test]
    fn a_pipe_in_the_place_of_what_is_copied_gives_way() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("file");
        let slash = PathBuf::from(format!("{}/", place.path().display()));
        for named in [place.path().to_owned(), slash] {
            make_pipe(&file);
            // With a reader or without one.
            let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let reader = openat(CWD, &file, flags, Mode::empty()).unwrap();
            save(&mut b"new".as_slice(), &target(named.clone()), 0o644).unwrap();
            assert!(file.metadata().unwrap().is_file());
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
            drop(reader);
            std::fs::remove_file(&file).unwrap();
            make_pipe(&file);
            save(&mut b"newer".as_slice(), &target(named), 0o644).unwrap();
            assert_eq!(std::fs::read_to_string(&file).unwrap(), "newer");
            std::fs::remove_file(&file).unwrap();
        }
    }

    #[test]
    fn a_pipe_that_was_named_is_written_to_where_somebody_reads_it() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("file");
        make_pipe(&pipe);
        let refused = save(&mut b"x".as_slice(), &target(pipe.clone()), 0o644).unwrap_err();
        assert!(refused.to_string().contains("start its reader first"), "{refused}");
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let mut reader = File::from(openat(CWD, &pipe, flags, Mode::empty()).unwrap());
        // More than a pipe holds: whoever writes waits for who reads.
        let much = vec![b'x'; 1 << 20];
        let sent = much.clone();
        let writer = std::thread::spawn(move || save(&mut &*sent, &target(pipe), 0o644));
        fcntl_setfl(&reader, OFlags::empty()).unwrap();
        let mut received = vec![0; much.len()];
        rustix::event::poll(
            &mut [rustix::event::PollFd::new(&reader, rustix::event::PollFlags::IN)],
            None,
        )
        .unwrap();
        reader.read_exact(&mut received).unwrap();
        assert!(received == much);
        assert_eq!(writer.join().unwrap().unwrap(), 1 << 20);
    }

    #[test]
    fn a_pipe_is_not_waited_for_to_be_sent() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        make_pipe(&pipe);
        let refused = open_source(&pipe).unwrap_err();
        assert!(refused.to_string().contains("it is a pipe; "), "{refused}");
        // The twins: a file, a directory, and what a shell puts into a command's arguments.
        std::fs::write(place.path().join("file"), "x").unwrap();
        let mut content = String::new();
        let mut file = open_source(&place.path().join("file")).unwrap();
        file.read_to_string(&mut content).unwrap();
        assert_eq!(content, "x");
        assert!(open_source(place.path()).unwrap().metadata().unwrap().is_dir());
        let (reader, mut writer) = io::pipe().unwrap();
        let shells = PathBuf::from(format!("/dev/fd/{}", reader.as_raw_fd()));
        let mut opened = open_source(&shells).unwrap();
        let writer = std::thread::spawn(move || io::Write::write_all(&mut writer, b"piped"));
        let mut content = [0; 5];
        opened.read_exact(&mut content).unwrap();
        assert_eq!(&content, b"piped");
        writer.join().unwrap().unwrap();
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
        let repeats = io::Error::other("no \x1b[2J");
        assert_eq!(about(Path::new("a"), &repeats).to_string(), "`a`: no ␛[2J");
    }
}
