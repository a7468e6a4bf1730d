//! A place on the host, held by descriptor.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{Mode, OFlags};

/// A directory or file that was looked up once. Whatever happens to the name later, this is what gets mounted.
#[derive(Clone, Debug)]
pub struct HostPath {
    pub descriptor: Arc<OwnedFd>,
    /// The path that the descriptor really has, for a launcher that must find it again by name.
    pub real: Vec<u8>,
}

impl HostPath {
    pub fn open(path: &Path) -> io::Result<Self> {
        let descriptor = rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        Ok(Self::of(descriptor, path))
    }

    /// A path by which this process finds exactly this, as long as `self` is kept.
    #[must_use]
    pub fn by_descriptor(&self) -> std::path::PathBuf {
        format!("/proc/self/fd/{}", self.descriptor.as_raw_fd()).into()
    }

    /// `path` is used only where the kernel does not tell.
    pub fn of(descriptor: OwnedFd, path: &Path) -> Self {
        let real = std::fs::read_link(format!("/proc/self/fd/{}", descriptor.as_raw_fd()))
            .unwrap_or_else(|_| path.to_owned());
        Self { descriptor: Arc::new(descriptor), real: real.as_os_str().as_bytes().to_vec() }
    }
}
