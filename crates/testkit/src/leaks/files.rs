//! Files that belong to sandboxes, in a state directory, and directories that installations have in memory.
//!
//! The store, locks and templates of an installation stay; what belongs to one sandbox goes with it.

use std::fs;
use std::path::Path;

use super::Scope;

/// Directories of the state directory that hold things of living sandboxes only.
const OF_SANDBOXES: [&str; 5] = ["sandboxes", "ids", "owners", "staging", "trash"];

/// Where an installation has a directory while it has sandboxes or a launcher.
const IN_MEMORY: [&str; 2] = ["/run", "/dev/shm"];

pub(super) fn list(scope: &Scope) -> Vec<String> {
    let in_memory = IN_MEMORY.iter().flat_map(|base| entries(Path::new(base)));
    let mut found: Vec<_> = in_memory.filter(|path| scope.holds(path)).collect();
    if let Scope::Marked { state, .. } = scope {
        found.extend(OF_SANDBOXES.iter().flat_map(|name| entries(&state.join(name))));
    }
    found
}

fn entries(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.path().display().to_string()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_things_of_sandboxes_count() {
        let state = tempfile::tempdir().expect("a temporary directory");
        fs::write(state.path().join("belljar.db"), "").expect("our own file");
        fs::create_dir_all(state.path().join("sandboxes/x1")).expect("our own directory");
        let scope = Scope::Marked { marks: Vec::new(), state: state.path().to_path_buf() };
        assert_eq!(list(&scope), [state.path().join("sandboxes/x1").display().to_string()]);
    }
}
