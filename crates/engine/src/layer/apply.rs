//! Writes a layer's changes to the host's directory.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;

use belljar_codes::Code;
use belljar_policy::SandboxId;

use super::LayerChangeKind;
use super::compare::Change;
use super::tree::Tree;
use crate::files::{FileInfo, FileKind, Files};
use crate::{Error, Result};

/// Makes all changes, what goes before what comes. Each file appears whole or not at all.
pub(super) async fn apply(
    changes: &[Change],
    files: &Files,
    tree: &Tree,
    sandbox: &SandboxId,
) -> Result<()> {
    // Always the same name: what an interrupted apply left is replaced by the next one.
    let temporary = format!(".belljar-{sandbox}");
    for change in changes.iter().filter(|c| c.shown.change == LayerChangeKind::Removed) {
        tree.remove(&change.shown.path)?;
    }
    for change in changes.iter().filter(|c| c.shown.change != LayerChangeKind::Skipped) {
        let Some(upper) = &change.upper else { continue };
        match upper.kind {
            FileKind::Directory => tree.make_directory(&upper.path, upper.mode)?,
            FileKind::Symlink => {
                let target = upper.link_target.as_deref().unwrap_or(std::path::Path::new(""));
                tree.make_symlink(&upper.path, target, &temporary)?;
            }
            FileKind::File => {
                let copied = copy(upper, files, tree, &temporary).await;
                if copied.is_err() {
                    tree.abandon_file(&upper.path, &temporary);
                }
                copied?;
            }
            _ => {}
        }
    }
    Ok(())
}

async fn copy(upper: &FileInfo, files: &Files, tree: &Tree, temporary: &str) -> Result<()> {
    let mut reader = files.read_layer(upper.path.as_os_str().as_bytes().to_vec())?;
    let mut file = tree.begin_file(&upper.path, temporary)?;
    while let Some(piece) = reader.next().await? {
        file.write_all(&piece).map_err(|source| {
            let shown = belljar_policy::shown(&upper.path.to_string_lossy());
            Error::new(Code::HostExhausted, format!("write `{shown}` in the workspace"))
                .with_source(source)
        })?;
    }
    tree.finish_file(&upper.path, temporary, &file, upper.mode, upper.modified)
}
