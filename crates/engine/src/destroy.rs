//! Destroying a sandbox: from any state, as often as wanted, by whoever comes first.

use std::sync::Arc;
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::SandboxId;

use crate::engine::Inner;
use crate::fault::point;
use crate::lock::FileLock;
use crate::store::{End, SandboxRecord, State, Step};
use crate::{Error, Result};

/// How long another process may be at work on the same sandbox. Longer than any start or stop takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Destroys a sandbox; one that has ended is fine.
pub(crate) async fn destroy(inner: &Arc<Inner>, id: &SandboxId, end: End) -> Result<()> {
    let path = inner.directory.sandbox_lock(id);
    let lock = FileLock::acquire(&path, PATIENCE)
        .await
        .map_err(|source| Error::state("lock", &path, source))?
        .ok_or_else(|| {
            Error::new(
                Code::SandboxNotReady,
                format!("another process has been at work on sandbox `{id}` for too long"),
            )
            .with_remedy("look for a `belljar` process that hangs, and end it")
        })?;
    let result = match inner.store.sandbox(id).await? {
        None => Err(Error::sandbox_not_found(id.as_str())),
        Some(record) if has_ended(record.state) => Ok(()),
        Some(record) => finish(inner, &record, end).await,
    };
    if result.is_ok() {
        release(lock);
    }
    result
}

/// Stops and removes everything of a sandbox and ends its record.
///
/// Preconditions: the caller holds the sandbox's lock, and the record was read since.
pub(crate) async fn finish(inner: &Arc<Inner>, record: &SandboxRecord, end: End) -> Result<()> {
    let id = &record.id;
    let backend = inner.backends.get(&record.backend)?;
    inner.store.transition(id, Step::Stopping, State::Destroying).await?;
    point("destroy.stopping");
    inner.forget(id).await;
    backend.stop(id).await?;
    point("destroy.stopping.done");

    inner.store.journal(id, Step::Removing).await?;
    point("destroy.removing");
    for path in [inner.directory.owner_lock(id), inner.directory.ensure_lock(id)] {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::state("remove", &path, error));
            }
            _ => {}
        }
    }
    point("destroy.removing.done");

    inner.store.end(id, &end).await?;
    point("destroy.destroyed");
    Ok(())
}

pub(crate) fn has_ended(state: State) -> bool {
    matches!(state, State::Destroyed | State::Failed)
}

pub(crate) fn release(lock: FileLock) {
    if let Err(error) = lock.remove() {
        tracing::debug!(%error, "a lock file was left behind");
    }
}
