//! The agent as a file, for walls that start it by a path inside.

use std::io;
use std::path::{Path, PathBuf};

use crate::skeleton::{Item, Skeleton};

/// Where it is, relative to the sandbox's root.
pub(crate) const TARGET: &str = belljar_launcher::wire::INIT_DIRECTORY;

/// The directory on the host.
pub(crate) fn directory(templates: &Path, program: &[u8], privileged: bool) -> io::Result<PathBuf> {
    let mut skeleton = Skeleton::default();
    skeleton.add("belljar-agent", Item::File { content: program.to_vec(), mode: 0o755 });
    skeleton.build(templates, "init", privileged)
}
