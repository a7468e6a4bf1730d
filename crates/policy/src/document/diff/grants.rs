//! Tools, directories, programs, credentials, environment.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use super::{Changes, Effect, Subject};
use crate::document::{Document, Mount, MountAccess, Tool};

pub(super) fn compare(old: &Document, new: &Document, changes: &mut Changes) {
    let tools = |document: &Document| document.tool_allowlist.iter().cloned().collect();
    sets(&tools(old), &tools(new), Subject::Tool, "tool", ("exists", "no longer exists"), changes);
    if old.tools != new.tools {
        declared_tools(old, new, changes);
    }
    mounts(old, new, changes);
    read_only(old, new, changes);
    programs(old, new, changes);
    let credentials = |document: &Document| {
        document.credentials.iter().map(|found| (found.name.clone(), found.clone())).collect()
    };
    let (before, after): (BTreeMap<_, _>, BTreeMap<_, _>) = (credentials(old), credentials(new));
    for (name, found) in &after {
        match before.get(name) {
            None => changes.turn(Subject::Credential, true, format!("credential {found} is bound")),
            Some(known) if known != found => changes.add(
                Subject::Credential,
                Effect::Other,
                format!("credential `{name}` is bound otherwise"),
            ),
            Some(_) => {}
        }
    }
    for (name, found) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
        let _ = name;
        changes.turn(Subject::Credential, false, format!("credential {found} is no longer bound"));
    }
    if before == after && old.credentials != new.credentials {
        let text = "the order of credentials changes".to_owned();
        changes.add(Subject::Credential, Effect::Other, text);
    }
    if old.environment != new.environment {
        let text = "the environment section changes".to_owned();
        changes.add(Subject::Environment, Effect::Other, text);
    }
}

fn declared_tools(old: &Document, new: &Document, changes: &mut Changes) {
    let by_name = |document: &Document| -> BTreeMap<String, Tool> {
        document.tools.iter().map(|tool| (tool.name.clone(), tool.clone())).collect()
    };
    let (before, after) = (by_name(old), by_name(new));
    for (name, tool) in &after {
        match before.get(name) {
            None => changes.turn(Subject::Tool, true, format!("the host runs tool {tool}")),
            Some(known) if known != tool => {
                let text = format!("tool `{name}` is run otherwise");
                changes.add(Subject::Tool, Effect::Other, text);
            }
            Some(_) => {}
        }
    }
    for (_, tool) in before.iter().filter(|(name, _)| !after.contains_key(*name)) {
        changes.turn(Subject::Tool, false, format!("the host no longer runs tool {tool}"));
    }
    if before == after {
        let text = "tools are written otherwise".to_owned();
        changes.add(Subject::Tool, Effect::Other, text);
    }
}

fn sets<T: Ord + Display>(
    old: &BTreeSet<T>,
    new: &BTreeSet<T>,
    subject: Subject,
    noun: &str,
    (gained, lost): (&str, &str),
    changes: &mut Changes,
) {
    for item in new.difference(old) {
        changes.turn(subject, true, format!("{noun} `{item}` {gained}"));
    }
    for item in old.difference(new) {
        changes.turn(subject, false, format!("{noun} `{item}` {lost}"));
    }
}

fn mounts(old: &Document, new: &Document, changes: &mut Changes) {
    let by_target = |document: &Document| -> BTreeMap<String, Mount> {
        let mounts = document.mounts().into_iter();
        mounts.map(|mount| (mount.target.as_str().to_owned(), mount)).collect()
    };
    let (before, after) = (by_target(old), by_target(new));
    let how = |access| if access == MountAccess::ReadWrite { "writable" } else { "readable" };
    for (target, mount) in &after {
        let source = &mount.source;
        match before.get(target) {
            None => changes.turn(
                Subject::Path,
                true,
                format!("path `{target}` (host `{source}`) becomes {}", how(mount.access)),
            ),
            Some(known) if known.source != *source => changes.add(
                Subject::Path,
                Effect::Other,
                format!("path `{target}` shows host `{source}` instead of `{}`", known.source),
            ),
            Some(known) if known.access != mount.access => changes.turn(
                Subject::Path,
                mount.access == MountAccess::ReadWrite,
                format!("path `{target}` is now only {}", how(mount.access))
                    .replace("only writable", "writable"),
            ),
            Some(_) => {}
        }
    }
    for target in before.keys().filter(|target| !after.contains_key(*target)) {
        changes.turn(Subject::Path, false, format!("path `{target}` is no longer there"));
    }
    let same = before == after;
    if same && (old.sandbox_mounts != new.sandbox_mounts || old.mounts() != new.mounts()) {
        let text = "mounts are written otherwise".to_owned();
        changes.add(Subject::Path, Effect::Other, text);
    }
}

fn read_only(old: &Document, new: &Document, changes: &mut Changes) {
    let paths = |document: &Document| -> BTreeSet<String> {
        let section = document.filesystem.iter().flat_map(|filesystem| &filesystem.read_only);
        section.map(|path| path.as_str().to_owned()).collect()
    };
    for path in paths(new).difference(&paths(old)) {
        changes.turn(Subject::Path, false, format!("path `{path}` is now read-only"));
    }
    for path in paths(old).difference(&paths(new)) {
        changes.turn(Subject::Path, true, format!("path `{path}` is no longer read-only"));
    }
    let root = |document: &Document| document.filesystem.as_ref().and_then(|f| f.writable_root);
    if root(old) != root(new) {
        let (effect, text) = match root(new) {
            Some(true) => (Effect::Wider, "the root becomes writable"),
            Some(false) => (Effect::Narrower, "the root is read-only"),
            None => (Effect::Other, "whether the root is writable is no longer said"),
        };
        changes.add(Subject::Path, effect, text.to_owned());
    }
    if old.filesystem.is_some() != new.filesystem.is_some() && old.mounts() == new.mounts() {
        let text = "the filesystem section comes or goes".to_owned();
        changes.add(Subject::Path, Effect::Other, text);
    }
}

fn programs(old: &Document, new: &Document, changes: &mut Changes) {
    let named = |document: &Document| -> Option<BTreeSet<String>> {
        Some(document.programs.as_ref()?.iter().map(str::to_owned).collect())
    };
    match (named(old), named(new)) {
        (Some(old), Some(new)) => {
            let words = ("is reachable", "is no longer reachable");
            sets(&old, &new, Subject::Program, "program", words, changes);
        }
        (Some(_), None) => {
            changes.turn(Subject::Program, true, "every program becomes reachable".to_owned());
        }
        (None, Some(new)) => {
            let list = new.into_iter().collect::<Vec<_>>().join(", ");
            changes.turn(Subject::Program, false, format!("only these programs remain: {list}"));
        }
        (None, None) => {}
    }
}
