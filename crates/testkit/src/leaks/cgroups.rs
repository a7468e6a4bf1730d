//! Control groups, in every hierarchy.

use std::fs;
use std::path::{Path, PathBuf};

use super::Scope;

const MOUNT: &str = "/sys/fs/cgroup";

pub(super) fn list(scope: &Scope) -> Vec<String> {
    let mut found = Vec::new();
    let mut open = vec![PathBuf::from(MOUNT)];
    while let Some(directory) = open.pop() {
        for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            let path = entry.path();
            if scope.holds(&path.to_string_lossy()) && !is_parent(&path) {
                found.push(path.to_string_lossy().into_owned());
            }
            open.push(path);
        }
    }
    found
}

/// The group that holds all groups of an installation may stay: it limits nothing and costs nothing.
fn is_parent(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name == "belljar" || name.starts_with("belljar-") && empty(path)
}

fn empty(path: &Path) -> bool {
    let processes = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let below = fs::read_dir(path).into_iter().flatten().flatten();
    let groups = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count();
    processes.is_empty() && groups == 0
}

/// Control groups of one sandbox: directories whose path contains `mark`.
pub(super) fn of(mark: &str) -> Vec<PathBuf> {
    let scope = Scope::Marked { marks: vec![mark.to_owned()], state: PathBuf::new() };
    list(&scope).into_iter().map(PathBuf::from).collect()
}
