//! What a sandbox that has tools finds inside: `belljar-tool` and modules for Python and Node, read-only.

use std::io;
use std::path::{Path, PathBuf};

use crate::skeleton::{Item, Skeleton};

/// Where it is, relative to the sandbox's root.
pub const TARGET: &str = "run/belljar/tools";

/// The socket that the agent takes calls at.
pub const SOCKET: &str = "/run/belljar/service/tools.sock";

const PYTHON: &str = include_str!("../tools/belljar_tools.py");
const NODE: &str = include_str!("../tools/belljar-tools/index.js");
const NODE_PACKAGE: &str = include_str!("../tools/belljar-tools/package.json");

/// The directory on the host. The program is the agent's own, which looks at the name it is started by.
pub fn directory(templates: &Path, program: &[u8], privileged: bool) -> io::Result<PathBuf> {
    let mut skeleton = Skeleton::default();
    for path in ["bin", "python", "node", "node/belljar-tools"] {
        skeleton.directory(path);
    }
    skeleton.add("bin/belljar-tool", Item::File { content: program.to_vec(), mode: 0o755 });
    skeleton.file("python/belljar_tools.py", PYTHON);
    skeleton.file("node/belljar-tools/index.js", NODE);
    skeleton.file("node/belljar-tools/package.json", NODE_PACKAGE);
    skeleton.build(templates, "tools", privileged)
}

/// Search paths that they are found by.
pub fn search_paths() -> Vec<(String, String)> {
    [("PATH", "bin"), ("PYTHONPATH", "python"), ("NODE_PATH", "node")]
        .map(|(name, place)| (name.to_owned(), format!("/{TARGET}/{place}")))
        .to_vec()
}
