//! The `rootfs:DIR` template: an unpacked root file system, read-only below a layer of mount points.

use std::io;
use std::path::{Path, PathBuf};

use crate::skeleton::Skeleton;

/// Where programs are searched, in any root.
pub(crate) const SEARCH_PATH: &[&str] = &[
    "/home/user/.local/bin",
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// The layer of mount points that lies above the directory.
pub(crate) fn mount_points(templates: &Path, privileged: bool) -> io::Result<PathBuf> {
    Skeleton::mount_points().build(templates, "mount-points", privileged)
}
