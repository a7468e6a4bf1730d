//! What a layer means for the directory below it.

use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use belljar_codes::Code;

use super::tree::{Entry, Tree, check_relative};
use super::{LayerChange, LayerChangeKind};
use crate::files::{FileInfo, FileKind, Files, ListOptions};
use crate::{Error, Result};

/// How deep one listing goes; what is below is listed by itself.
const DEPTH: u32 = 64;

/// A layer with more entries than this is not looked at as a whole.
const MOST: usize = 500_000;

/// One change, with what is needed to make it on the host.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub(super) shown: LayerChange,
    /// What the layer has; `None` for something removed.
    pub(super) upper: Option<FileInfo>,
}

/// Compares a sandbox's layer with the host's directory.
pub(super) async fn changes(files: &Files, tree: &Tree) -> Result<Vec<Change>> {
    compare(&entries(files).await?, tree)
}

/// Everything in the layer, each directory before what is in it.
async fn entries(files: &Files) -> Result<Vec<FileInfo>> {
    let mut all = Vec::new();
    let mut pending = vec![PathBuf::new()];
    while let Some(base) = pending.pop() {
        let mut options = ListOptions { depth: DEPTH, ..ListOptions::default() };
        loop {
            let path = base.as_os_str().as_bytes().to_vec();
            let listing = files.list_layer(path, &options).await?;
            let last = listing.entries.last().map(|entry| entry.path.clone());
            for mut entry in listing.entries {
                check_relative(&entry.path)?;
                let deep = entry.path.components().count() >= DEPTH as usize;
                entry.path = base.join(&entry.path);
                if deep && entry.kind == FileKind::Directory {
                    pending.push(entry.path.clone());
                }
                all.push(entry);
            }
            if all.len() > MOST {
                return Err(Error::new(
                    Code::FileFailed,
                    format!("the workspace layer has more than {MOST} entries"),
                )
                .with_remedy(
                    "remove what is not wanted inside the sandbox, or discard the layer",
                ));
            }
            match last {
                Some(last) if listing.more => options.after = Some(last),
                _ => break,
            }
        }
    }
    Ok(all)
}

fn compare(upper: &[FileInfo], tree: &Tree) -> Result<Vec<Change>> {
    let mut changes = Vec::new();
    for entry in upper {
        let below = tree.entry(&entry.path)?;
        match entry.kind {
            FileKind::Whiteout => changes.extend(below.map(|below| removed(&entry.path, &below))),
            FileKind::Directory => {
                let is_directory =
                    below.as_ref().is_some_and(|below| below.kind == FileKind::Directory);
                if !is_directory || below.as_ref().is_some_and(|below| below.mode != entry.mode) {
                    changes.push(present(entry, below.as_ref()));
                }
                if is_directory && entry.opaque {
                    changes.extend(hidden(entry, upper, tree)?);
                }
            }
            FileKind::File | FileKind::Symlink => {
                if !below.as_ref().is_some_and(|below| is_same(entry, below)) {
                    changes.push(present(entry, below.as_ref()));
                }
            }
            FileKind::Fifo
            | FileKind::Socket
            | FileKind::CharacterDevice
            | FileKind::BlockDevice => {
                let mut change = present(entry, below.as_ref());
                change.shown.change = LayerChangeKind::Skipped;
                changes.push(change);
            }
        }
    }
    Ok(changes)
}

/// What an opaque directory of the layer hides: everything below that the layer does not have itself.
fn hidden(directory: &FileInfo, upper: &[FileInfo], tree: &Tree) -> Result<Vec<Change>> {
    let own: HashSet<&Path> = upper
        .iter()
        .filter(|entry| entry.path.parent() == Some(&directory.path))
        .map(|entry| entry.path.as_path())
        .collect();
    let mut names: Vec<OsString> = tree.names(&directory.path)?;
    names.sort();
    let mut changes = Vec::new();
    for path in names.into_iter().map(|name| directory.path.join(name)) {
        if !own.contains(path.as_path()) {
            changes.extend(tree.entry(&path)?.map(|below| removed(&path, &below)));
        }
    }
    Ok(changes)
}

/// A copy that was never changed: the kernel copies a file up when it is opened for writing, with its time.
fn is_same(upper: &FileInfo, below: &Entry) -> bool {
    upper.kind == below.kind
        && match upper.kind {
            FileKind::Symlink => upper.link_target == below.link_target,
            _ => {
                upper.size == below.size
                    && upper.mode & 0o777 == below.mode
                    && upper.modified == below.modified
            }
        }
}

fn present(upper: &FileInfo, below: Option<&Entry>) -> Change {
    let change = match below {
        Some(_) => LayerChangeKind::Modified,
        None => LayerChangeKind::Added,
    };
    Change {
        shown: LayerChange { path: upper.path.clone(), change, kind: upper.kind, size: upper.size },
        upper: Some(upper.clone()),
    }
}

fn removed(path: &Path, below: &Entry) -> Change {
    Change {
        shown: LayerChange {
            path: path.to_owned(),
            change: LayerChangeKind::Removed,
            kind: below.kind,
            size: below.size,
        },
        upper: None,
    }
}

/// Paths that were changed on the host after `since`, or whose place is no directory there any more.
pub(super) fn conflicts(
    changes: &[Change],
    tree: &Tree,
    since: SystemTime,
) -> Result<Vec<PathBuf>> {
    let made: HashSet<&Path> = changes
        .iter()
        .filter(|change| change.upper.as_ref().is_some_and(|u| u.kind == FileKind::Directory))
        .map(|change| change.shown.path.as_path())
        .collect();
    let mut conflicts = Vec::new();
    for change in changes {
        let path = &change.shown.path;
        let parent_is_made = path.ancestors().skip(1).any(|parent| made.contains(parent));
        let is_conflict = match change.shown.change {
            LayerChangeKind::Skipped => false,
            LayerChangeKind::Added => !parent_is_made && tree.is_blocked(path),
            // A directory's own time changes with every name in it, so only its contents count, and they have
            // changes of their own.
            LayerChangeKind::Modified if change.shown.kind == FileKind::Directory => {
                let below = tree.entry(path)?;
                below.is_some_and(|b| b.kind != FileKind::Directory && b.modified > since)
            }
            LayerChangeKind::Modified | LayerChangeKind::Removed => {
                tree.changed_since(path, since)?
            }
        };
        if is_conflict {
            conflicts.push(path.clone());
        }
    }
    Ok(conflicts)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use super::*;
    use crate::mounts::open_directory;
    use belljar_policy::Access;

    fn upper(path: &str, kind: FileKind) -> FileInfo {
        FileInfo {
            path: path.into(),
            kind,
            size: 3,
            mode: if kind == FileKind::Directory { 0o755 } else { 0o644 },
            uid: 1000,
            gid: 1000,
            modified: UNIX_EPOCH + Duration::from_secs(2_000_000),
            link_target: (kind == FileKind::Symlink).then(|| "target".into()),
            links: 1,
            opaque: false,
        }
    }

    fn workspace() -> (tempfile::TempDir, Tree) {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        for path in ["src", "src/old", "gone"] {
            std::fs::create_dir(root.join(path)).unwrap();
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(root.join(path), mode).unwrap();
        }
        for path in ["README", "src/a", "src/old/b", "gone/c"] {
            std::fs::write(root.join(path), "old").unwrap();
            let mode = std::fs::Permissions::from_mode(0o644);
            std::fs::set_permissions(root.join(path), mode).unwrap();
        }
        let opened = open_directory(root, Access::ReadOnly).unwrap();
        let tree = Tree::new(root, &opened.descriptor).unwrap();
        (directory, tree)
    }

    fn check(entries: &[FileInfo], expected: &[(&str, LayerChangeKind)]) {
        let (_directory, tree) = workspace();
        let found = compare(entries, &tree).unwrap();
        let found: Vec<_> = found
            .iter()
            .map(|change| (change.shown.path.to_str().unwrap(), change.shown.change))
            .collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn changes_have_kinds() {
        use FileKind::{Directory, Fifo, File, Symlink, Whiteout};
        use LayerChangeKind::{Added, Modified, Removed, Skipped};
        check(&[], &[]);
        check(
            &[
                upper("README", File),
                upper("gone", Whiteout),
                upper("never", Whiteout),
                upper("new", File),
                upper("pipe", Fifo),
                upper("src", Directory),
                upper("src/a", Symlink),
                upper("src/made", Directory),
                upper("src/made/x", File),
            ],
            &[
                ("README", Modified),
                ("gone", Removed),
                ("new", Added),
                ("pipe", Skipped),
                ("src/a", Modified),
                ("src/made", Added),
                ("src/made/x", Added),
            ],
        );
        let opaque = FileInfo { opaque: true, ..upper("src", Directory) };
        check(&[opaque, upper("src/a", File)], &[("src/old", Removed), ("src/a", Modified)]);
        check(
            &[upper("README", Directory), upper("README/x", File)],
            &[("README", Modified), ("README/x", Added)],
        );
    }

    #[test]
    fn a_copy_that_was_not_changed_is_no_change() {
        let (directory, tree) = workspace();
        let path = directory.path().join("README");
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        let copy = FileInfo { modified, ..upper("README", FileKind::File) };
        assert!(compare(std::slice::from_ref(&copy), &tree).unwrap().is_empty());
        let executable = FileInfo { mode: 0o755, ..copy };
        assert_eq!(compare(&[executable], &tree).unwrap().len(), 1);
    }

    #[test]
    fn what_changed_on_the_host_meanwhile_is_a_conflict() {
        let (directory, tree) = workspace();
        let upper = [
            upper("README", FileKind::File),
            upper("gone", FileKind::Whiteout),
            upper("new", FileKind::File),
        ];
        let changes = compare(&upper, &tree).unwrap();
        let later = SystemTime::now() + Duration::from_secs(3600);
        assert_eq!(conflicts(&changes, &tree, later).unwrap(), Vec::<PathBuf>::new());
        let earlier = UNIX_EPOCH;
        let found = conflicts(&changes, &tree, earlier).unwrap();
        assert_eq!(found, [PathBuf::from("README"), PathBuf::from("gone")]);

        std::fs::remove_dir_all(directory.path().join("src")).unwrap();
        std::os::unix::fs::symlink("/tmp", directory.path().join("src")).unwrap();
        let through = [FileInfo { path: "src/x".into(), ..upper[2].clone() }];
        let changes = compare(&through, &tree).unwrap();
        assert_eq!(conflicts(&changes, &tree, later).unwrap(), [PathBuf::from("src/x")]);
    }
}
