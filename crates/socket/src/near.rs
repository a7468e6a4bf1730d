//! Names of sockets that are too long for an address.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The same place by way of its directory's descriptor: an address has room for 107 bytes, a path may have more. It leads
/// there as long as the descriptor is open.
///
/// # Errors
/// Where the path has no name at its end, or its directory cannot be entered.
pub fn near(path: &Path) -> io::Result<(OwnedFd, PathBuf)> {
    let name = path.file_name().ok_or(io::ErrorKind::InvalidFilename)?;
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = rustix::fs::open(parent(path), flags, Mode::empty())?;
    let near = PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd())).join(name);
    Ok((directory, near))
}

/// The directory that a name is in.
#[must_use]
pub fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::{UnixListener, UnixStream};

    #[test]
    fn a_long_name_is_near() {
        let place = std::env::temp_dir().join(format!("belljar-near-{}", std::process::id()));
        let directory = place.join("d".repeat(200));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("socket");
        assert!(UnixListener::bind(&path).is_err(), "what this is for");
        let (_held, short) = near(&path).unwrap();
        let _listener = UnixListener::bind(&short).unwrap();
        let (_held, short) = near(&path).unwrap();
        UnixStream::connect(short).unwrap();
        std::fs::remove_dir_all(&place).unwrap();
    }

    #[test]
    fn every_name_is_in_a_directory() {
        for (path, directory) in [("/a/b", "/a"), ("a/b", "a"), ("b", "."), ("/b", "/")] {
            assert_eq!(parent(Path::new(path)), Path::new(directory), "{path}");
        }
        for nameless in ["/", "..", ""] {
            assert!(near(Path::new(nameless)).is_err(), "{nameless}");
        }
    }
}
