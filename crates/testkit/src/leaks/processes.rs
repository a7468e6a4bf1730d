//! Processes of the product, and processes in its sandboxes.

use std::fs;
use std::path::{Path, PathBuf};

use super::Scope;

/// Programs of the product and its static agent, however they were started.
const PROGRAMS: [&str; 4] = ["belljar", "belljar-agent", "belljar-launcher", "memfd:belljar-agent"];

pub(super) fn list(scope: &Scope) -> Vec<String> {
    matching(scope)
        .into_iter()
        .map(|process| {
            let read = |name: &str| fs::read_to_string(process.join(name)).unwrap_or_default();
            let command = read("cmdline").replace('\0', " ");
            let number = process.file_name().map(|n| n.to_string_lossy().into_owned());
            let number = number.unwrap_or_default();
            format!("{number} {} `{}`", read("comm").trim(), command.trim())
        })
        .collect()
}

/// Directories in `/proc` of the processes in scope.
pub(super) fn matching(scope: &Scope) -> Vec<PathBuf> {
    let own = std::process::id().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries
        .filter(|entry| {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            name.bytes().all(|byte| byte.is_ascii_digit()) && *name != own
        })
        .map(|entry| entry.path())
        .filter(|process| belongs(scope, process))
        .collect()
}

fn belongs(scope: &Scope, process: &Path) -> bool {
    let read = |name: &str| {
        let bytes = fs::read(process.join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    match scope {
        Scope::Machine => is_program(process) || scope.holds(&read("cgroup")),
        Scope::Marked { .. } => {
            let named = scope.holds(&read("cmdline")) || scope.holds(&read("environ"));
            // A sandbox sees files of the state directory as its root, wherever they are mounted.
            let inside = || scope.holds(&read("cgroup")) || scope.holds(&read("mountinfo"));
            (is_program(process) && named) || (!same_mounts(process) && inside())
        }
    }
}

fn is_program(process: &Path) -> bool {
    let program = fs::read_link(process.join("exe")).unwrap_or_default();
    let program = program.to_string_lossy();
    let program = program.trim_end_matches(" (deleted)");
    let name = program.rsplit('/').next().unwrap_or_default();
    PROGRAMS.contains(&name)
}

/// Whether a process sees the same mounts as the test, and so is in no sandbox.
fn same_mounts(process: &Path) -> bool {
    match (fs::read_link(process.join("ns/mnt")), fs::read_link("/proc/self/ns/mnt")) {
        (Ok(theirs), Ok(ours)) => theirs == ours,
        // It ended, or is none of ours to look at.
        _ => true,
    }
}
