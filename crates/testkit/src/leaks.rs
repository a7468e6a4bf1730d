//! What is left on the machine: processes, mounts, control groups, network namespaces and links, loop devices, files.
//!
//! Independent of the product's own leak check on purpose: it knows only what the kernel shows. Teardown of kernel
//! objects is asynchronous, so [`Snapshot::assert_same`] looks again until a deadline.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use crate::{PROMPT, wait_until};

mod cgroups;
mod devices;
mod files;
mod links;
mod mounts;
mod processes;

/// Whose things to look at.
#[derive(Clone, Debug)]
pub enum Scope {
    /// Everything of Belljar on this machine.
    Machine,
    /// Things whose name contains one of the marks, and files that belong to sandboxes in a state directory.
    Marked { marks: Vec<String>, state: PathBuf },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    Process,
    Mount,
    Cgroup,
    NetworkNamespace,
    Link,
    LoopDevice,
    File,
}

/// One thing that is there.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    pub kind: Kind,
    pub name: String,
}

/// Everything in a scope at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot(BTreeSet<Object>);

/// Names the things of one kind that are in a scope.
type List = fn(&Scope) -> Vec<String>;

/// Control groups of one sandbox, in every hierarchy: directories whose path contains `mark`.
#[must_use]
pub fn cgroups_of(mark: &str) -> Vec<PathBuf> {
    cgroups::of(mark)
}

impl Snapshot {
    #[must_use]
    pub fn take(scope: &Scope) -> Self {
        let mut objects = BTreeSet::new();
        let kinds: [(Kind, List); 7] = [
            (Kind::Process, processes::list),
            (Kind::Mount, mounts::list),
            (Kind::Cgroup, cgroups::list),
            (Kind::NetworkNamespace, links::namespaces),
            (Kind::Link, links::links),
            (Kind::LoopDevice, devices::list),
            (Kind::File, files::list),
        ];
        for (kind, list) in kinds {
            objects.extend(list(scope).into_iter().map(|name| Object { kind, name }));
        }
        Self(objects)
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What is here and was not there before.
    #[must_use]
    pub fn since(&self, before: &Self) -> Self {
        Self(self.0.difference(&before.0).cloned().collect())
    }

    /// Fails the test if, after a while, there is anything in `scope` that was not there before.
    #[track_caller]
    pub fn assert_same(&self, scope: &Scope) {
        let mut new = Self::default();
        let same = wait_until(PROMPT, || {
            new = Self::take(scope).since(self);
            new.is_empty().then_some(())
        });
        assert!(same.is_some(), "new since the snapshot:\n{new}");
    }

    /// The snapshot as text, a line each.
    #[must_use]
    pub fn to_lines(&self) -> String {
        self.to_string()
    }

    /// Reads what [`Snapshot::to_lines`] wrote. Lines of unknown kinds are left out.
    #[must_use]
    pub fn from_lines(text: &str) -> Self {
        let parse = |line: &str| {
            let (kind, name) = line.split_once(' ')?;
            let kind = Kind::ALL.into_iter().find(|candidate| candidate.as_str() == kind)?;
            Some(Object { kind, name: name.to_owned() })
        };
        Self(text.lines().filter_map(parse).collect())
    }
}

impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|object| writeln!(f, "{} {}", object.kind.as_str(), object.name))
    }
}

impl Scope {
    /// Whether a text that describes a thing puts it into this scope.
    fn holds(&self, text: &str) -> bool {
        match self {
            Self::Machine => text.contains("belljar"),
            Self::Marked { marks, .. } => marks.iter().any(|mark| text.contains(mark.as_str())),
        }
    }
}

impl Kind {
    const ALL: [Self; 7] = [
        Self::Process,
        Self::Mount,
        Self::Cgroup,
        Self::NetworkNamespace,
        Self::Link,
        Self::LoopDevice,
        Self::File,
    ];

    const fn as_str(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Mount => "mount",
            Self::Cgroup => "cgroup",
            Self::NetworkNamespace => "network-namespace",
            Self::Link => "link",
            Self::LoopDevice => "loop-device",
            Self::File => "file",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(names: &[&str]) -> Snapshot {
        let object = |name: &&str| Object { kind: Kind::Mount, name: (*name).to_owned() };
        Snapshot(names.iter().map(object).collect())
    }

    #[test]
    fn only_new_things_are_leaks() {
        let (before, after) = (snapshot(&["a", "b"]), snapshot(&["b", "c d"]));
        assert_eq!(after.since(&before), snapshot(&["c d"]));
        assert!(before.since(&before).is_empty());
    }

    #[test]
    fn a_snapshot_survives_its_lines() {
        let taken = snapshot(&["/a b", "/c"]);
        assert_eq!(Snapshot::from_lines(&taken.to_lines()), taken);
    }

    #[test]
    fn a_scope_holds_what_its_marks_name() {
        let state = PathBuf::from("/tmp/bj-1/state");
        let marked = Scope::Marked { marks: vec!["bj-1".to_owned()], state };
        let cases = [
            (&Scope::Machine, "/sys/fs/cgroup/pids/belljar-1/x", true),
            (&Scope::Machine, "/sys/fs/cgroup/pids/other", false),
            (&marked, "overlay /tmp/bj-1/state/x", true),
            (&marked, "overlay /tmp/bj-2/state/x", false),
        ];
        for (scope, text, expected) in cases {
            assert_eq!(scope.holds(text), expected, "{scope:?} {text}");
        }
    }
}
