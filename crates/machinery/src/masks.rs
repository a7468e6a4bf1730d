//! What comes over files and directories that a sandbox must not see: an empty one of the same kind.

use std::io;
use std::path::{Path, PathBuf};

use belljar_backend::{Mask, MaskKind, SandboxSpec};
use belljar_policy::Access;

use crate::skeleton::{Item, Skeleton};

/// The first mask whose mount can be written.
///
/// What keeps a mount point from being removed or replaced is that the kernel finds it in the mount namespace of whoever
/// tries. Another kernel changes files by descriptors, from a namespace of its own.
pub(crate) fn below_writable(spec: &SandboxSpec) -> Option<&Mask> {
    let may_write = |mask: &&Mask| {
        let around = spec.mounts.iter().filter(|mount| mask.target.starts_with(&mount.target));
        let mount = around.max_by_key(|mount| mount.target.components().count());
        mount.is_none_or(|mount| mount.access == Access::ReadWrite)
    };
    spec.masks.iter().find(may_write)
}

/// It, on the host.
pub fn source(templates: &Path, kind: MaskKind, privileged: bool) -> io::Result<PathBuf> {
    let mut skeleton = Skeleton::default();
    skeleton.add("directory", Item::Directory { mode: 0o555, agent: false });
    skeleton.add("file", Item::File { content: Vec::new(), mode: 0o444 });
    let name = match kind {
        MaskKind::Directory => "directory",
        MaskKind::File => "file",
    };
    Ok(skeleton.build(templates, "masks", privileged)?.join(name))
}
