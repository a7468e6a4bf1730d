//! Finding what no sandbox owns any more, and removing it.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_backend::Orphan;
use belljar_policy::{ProcessId, SandboxId};

use crate::engine::Inner;
use crate::recovery;
use crate::store::Which;
use crate::{Error, Result};

/// What a look for leaks found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeakReport {
    pub found: Vec<Orphan>,
    /// Those of `found` that were there no more afterwards. Empty unless removal was asked for.
    pub removed: Vec<Orphan>,
}

/// Looks everywhere. What recovery settles anyway (interrupted transitions, ended leases) is settled first and does not
/// count.
pub(crate) async fn leaks(inner: &Arc<Inner>, fix: bool) -> Result<LeakReport> {
    recovery::recover(inner).await?;
    recovery::sweep(inner).await?;
    let found = look(inner).await?;
    if !fix || found.is_empty() {
        return Ok(LeakReport { found, removed: Vec::new() });
    }
    for orphan in &found {
        if let Err(error) = remove(inner, orphan).await {
            tracing::warn!(%error, kind = orphan.kind, name = orphan.name, "not removed");
        }
    }
    let left = look(inner).await?;
    let removed = found.iter().filter(|orphan| !left.contains(orphan)).cloned().collect();
    Ok(LeakReport { found, removed })
}

async fn look(inner: &Arc<Inner>) -> Result<Vec<Orphan>> {
    let mut found = Vec::new();
    // A sandbox that is recorded after this is read would look like an orphan, so what is found is checked against a
    // second reading.
    let known = known(inner).await?;
    for backend in inner.backends.iter() {
        for orphan in backend.orphans(&known).await? {
            // Backends that are made of the same machinery find the same.
            if !found.contains(&orphan) {
                found.push(orphan);
            }
        }
    }
    let now_known: HashSet<SandboxId> = self::known(inner).await?.into_iter().collect();
    found.retain(|orphan| orphan.sandbox.as_ref().is_none_or(|id| !now_known.contains(id)));

    found.extend(stray_logs(inner).await?);
    found.extend(entries(&inner.directory.trash())?.iter().map(|path| file("trash", path)));
    Ok(found)
}

async fn known(inner: &Inner) -> Result<Vec<SandboxId>> {
    let records = inner.store.sandboxes(Which::Live).await?;
    Ok(records.into_iter().map(|record| record.id).collect())
}

/// Logs whose process nobody remembers.
async fn stray_logs(inner: &Inner) -> Result<Vec<Orphan>> {
    let mut found = Vec::new();
    for path in entries(&inner.directory.processes())? {
        let id = path.file_name().and_then(|name| ProcessId::parse(name.to_str()?).ok());
        let remembered = match &id {
            Some(id) => inner.store.process(id).await?.is_some(),
            None => false,
        };
        if !remembered {
            found.push(file("log", &path));
        }
    }
    Ok(found)
}

async fn remove(inner: &Inner, orphan: &Orphan) -> Result<()> {
    if let Some(id) = &orphan.sandbox {
        for backend in inner.backends.iter() {
            backend.stop(id).await?;
        }
        return Ok(());
    }
    let path = Path::new(&orphan.name);
    // Only what this module itself named: backends remove their own.
    if !matches!(orphan.kind.as_str(), "log" | "trash") || !path.starts_with(inner.directory.root())
    {
        return Ok(());
    }
    let removed = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    removed.map_err(|source| Error::state("remove", path, source))
}

fn file(kind: &str, path: &Path) -> Orphan {
    Orphan { kind: kind.to_owned(), name: path.display().to_string(), sandbox: None }
}

fn entries(directory: &Path) -> Result<Vec<PathBuf>> {
    let fail = |source| Error::state("list", directory, source);
    let entries = fs::read_dir(directory).map_err(fail)?;
    entries.map(|entry| entry.map(|entry| entry.path()).map_err(fail)).collect()
}
