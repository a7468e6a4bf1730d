//! The `rootfs:DIR` template: an unpacked root file system, read-only below a layer of mount points.

use std::io;
use std::path::{Path, PathBuf};

use crate::names;
use crate::skeleton::Skeleton;

/// Where programs are searched, in any root.
pub const SEARCH_PATH: &[&str] = &[
    "/home/user/.local/bin",
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// The layer of mount points that lies above the directory. With a network it also has the files that say where names
/// are found, in place of the directory's own.
pub fn mount_points(templates: &Path, privileged: bool, network: bool) -> io::Result<PathBuf> {
    let mut skeleton = Skeleton::mount_points();
    if network {
        skeleton.directory("etc");
        names::files(&mut skeleton, network);
    }
    skeleton.build(templates, "mount-points", privileged)
}
