//! Network namespaces and links.

use std::collections::BTreeSet;
use std::fs;

use super::{Scope, processes};

/// Network namespaces held by any process or by a mount; in a marked scope, those of processes in scope.
pub(super) fn namespaces(scope: &Scope) -> Vec<String> {
    let held = match scope {
        Scope::Machine => fs::read_dir("/proc")
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .collect(),
        Scope::Marked { .. } => processes::matching(scope),
    };
    let own = fs::read_link("/proc/self/ns/net").unwrap_or_default();
    let mut names: BTreeSet<String> = held
        .iter()
        .filter_map(|process| fs::read_link(process.join("ns/net")).ok())
        .filter(|name| *name != own)
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    if matches!(scope, Scope::Machine) {
        // A namespace that nobody is in lives on while it is mounted somewhere.
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let mounted = mounts.split_whitespace().filter(|word| word.starts_with("net:["));
        names.extend(mounted.map(str::to_owned));
    }
    names.into_iter().collect()
}

/// Links of the host's own network namespace. They carry no path, so a marked scope matches their names.
pub(super) fn links(scope: &Scope) -> Vec<String> {
    let entries = fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    match scope {
        Scope::Machine => names.collect(),
        Scope::Marked { .. } => names.filter(|name| scope.holds(name)).collect(),
    }
}
