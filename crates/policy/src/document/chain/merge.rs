//! Which rules of several documents count together, and what the rest of them says together.

use std::collections::HashMap;

use super::Layer;
use crate::document::{
    Action, Defaults, Document, EnvironmentSection, Filesystem, NetworkSection, Processes, Rule,
};

/// The indices of the rules that are left, in the order of writing.
pub(super) fn surviving(layers: &[Layer]) -> Vec<usize> {
    let rules = || layers.iter().flat_map(|layer| &layer.document.rules);
    // One document alone may use a name twice.
    if layers.len() == 1 {
        return (0..rules().count()).collect();
    }
    let mut named: HashMap<&str, (usize, &Rule)> = HashMap::new();
    let mut kept: Vec<bool> = Vec::new();
    for (index, rule) in rules().enumerate() {
        let keep = match named.get(rule.name.as_str()) {
            None => true,
            Some((_, known)) if !rule.overrides || known.action == Action::Deny => false,
            Some((replaced, _)) => {
                kept[*replaced] = false;
                true
            }
        };
        if keep {
            named.insert(&rule.name, (index, rule));
        }
        kept.push(keep);
    }
    kept.iter().enumerate().filter(|(_, keep)| **keep).map(|(index, _)| index).collect()
}

/// The nearest document, with what those above add. A limit is never higher than the lowest above; lists of what is
/// granted are those of the nearest document that has one.
pub(super) fn effective(layers: &[Layer]) -> Document {
    let mut documents = layers.iter().map(|layer| &layer.document);
    let Some(first) = documents.next() else { return Document::default() };
    let mut effective = documents.fold(first.clone(), |above, below| join(&above, below));
    let rules: Vec<&Rule> = layers.iter().flat_map(|layer| &layer.document.rules).collect();
    effective.rules = surviving(layers).into_iter().map(|index| rules[index].clone()).collect();
    effective.rules.sort_by_key(|rule| std::cmp::Reverse(rule.priority));
    effective.extends.clear();
    effective
}

fn join(above: &Document, below: &Document) -> Document {
    Document {
        defaults: join_defaults(&above.defaults, &below.defaults),
        network_allowlist: nearest_list(&above.network_allowlist, &below.network_allowlist),
        tool_allowlist: nearest_list(&above.tool_allowlist, &below.tool_allowlist),
        tools: nearest_list(&above.tools, &below.tools),
        sandbox_mounts: super::super::SandboxMounts {
            input_dir: nearest(&above.sandbox_mounts.input_dir, &below.sandbox_mounts.input_dir),
            output_dir: nearest(&above.sandbox_mounts.output_dir, &below.sandbox_mounts.output_dir),
        },
        isolation: above.isolation.max(below.isolation),
        filesystem: both(&above.filesystem, &below.filesystem, join_filesystem),
        network: both(&above.network, &below.network, join_network),
        credentials: nearest_list(&above.credentials, &below.credentials),
        programs: nearest(&above.programs, &below.programs),
        processes: both(&above.processes, &below.processes, |above, below| Processes {
            count: least(above.count, below.count),
            lifetime_seconds: least(above.lifetime_seconds, below.lifetime_seconds),
        }),
        environment: both(&above.environment, &below.environment, join_environment),
        ..below.clone()
    }
}

fn join_defaults(above: &Defaults, below: &Defaults) -> Defaults {
    Defaults {
        max_cpu: match (above.max_cpu, below.max_cpu) {
            (Some(above), Some(below)) => Some(above.min(below)),
            (above, below) => below.or(above),
        },
        max_memory_mb: least(above.max_memory_mb, below.max_memory_mb),
        timeout_seconds: least(above.timeout_seconds, below.timeout_seconds),
        ..below.clone()
    }
}

fn join_filesystem(above: &Filesystem, below: &Filesystem) -> Filesystem {
    let mut read_only = above.read_only.clone();
    read_only.extend(below.read_only.iter().cloned());
    Filesystem {
        writable_root: match (above.writable_root, below.writable_root) {
            (Some(false), _) => Some(false),
            (above, below) => below.or(above),
        },
        read_only,
        mounts: nearest_list(&above.mounts, &below.mounts),
    }
}

/// The rules above come first: of network rules the first that fits decides.
fn join_network(above: &NetworkSection, below: &NetworkSection) -> NetworkSection {
    let chained = |above: &[_], below: &[_]| [above, below].concat();
    NetworkSection {
        mode: nearest(&above.mode, &below.mode),
        rules: chained(&above.rules, &below.rules),
        budgets: [above.budgets.as_slice(), &below.budgets].concat(),
        ask_seconds: least(above.ask_seconds, below.ask_seconds),
    }
}

fn join_environment(above: &EnvironmentSection, below: &EnvironmentSection) -> EnvironmentSection {
    let mut set = above.set.clone();
    for (name, value) in below.set.iter() {
        // Both were checked; together they can only be too large, and then those above stay.
        let _ = set.set(name, value);
    }
    EnvironmentSection { set, allow: nearest(&above.allow, &below.allow) }
}

fn both<T: Clone>(above: &Option<T>, below: &Option<T>, join: fn(&T, &T) -> T) -> Option<T> {
    match (above, below) {
        (Some(above), Some(below)) => Some(join(above, below)),
        (above, below) => below.clone().or_else(|| above.clone()),
    }
}

fn nearest<T: Clone>(above: &Option<T>, below: &Option<T>) -> Option<T> {
    below.clone().or_else(|| above.clone())
}

fn nearest_list<T: Clone>(above: &[T], below: &[T]) -> Vec<T> {
    if below.is_empty() { above.to_vec() } else { below.to_vec() }
}

fn least<T: Ord>(above: Option<T>, below: Option<T>) -> Option<T> {
    match (above, below) {
        (Some(above), Some(below)) => Some(above.min(below)),
        (above, below) => below.or(above),
    }
}
