//! Directories, and what a file system is told about them.

use std::path::Path;

use rustix::fs::{IFlags, Mode, OFlags, ioctl_getflags, ioctl_setflags, open};

/// Tells the file system that what is made in this directory from here on has nothing to do with each other, so that it need
/// not be kept together. A hint: file systems that do not know it ignore it.
pub fn scatter(path: &Path) {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let Ok(directory) = open(path, flags, Mode::empty()) else { return };
    if let Ok(flags) = ioctl_getflags(&directory) {
        let _ = ioctl_setflags(&directory, flags | IFlags::TOPDIR);
    }
}
