//! Destroying a sandbox: from any state, as often as wanted, by whoever comes first.

use std::sync::Arc;

use belljar_policy::SandboxId;

use crate::engine::Inner;
use crate::fault::point;
use crate::store::{End, SandboxRecord, State, Step};
use crate::{Error, Result};

/// Destroys a sandbox; one that has ended is fine.
pub(crate) async fn destroy(inner: &Arc<Inner>, id: &SandboxId, end: End) -> Result<()> {
    let _lock = inner.lock_transition(id).await?;
    match inner.store.sandbox(id).await? {
        None => Err(Error::sandbox_not_found(id.as_str())),
        Some(record) if has_ended(record.state) => Ok(()),
        Some(record) => finish(inner, &record, end).await,
    }
}

/// Stops and removes everything of a sandbox and ends its record.
///
/// Preconditions: the caller holds the sandbox's lock, and the record was read since.
pub(crate) async fn finish(inner: &Arc<Inner>, record: &SandboxRecord, end: End) -> Result<()> {
    let id = &record.id;
    let backend = inner.backends.get(&record.backend)?;
    let steps = [Step::Stopping, Step::Removing];
    inner.store.transition(id, &steps, State::Destroying).await?;
    point("destroy.stopping");
    inner.forget(id).await;
    backend.stop(id).await?;
    point("destroy.stopping.done");

    point("destroy.removing");
    let path = inner.directory.ensure_lock(id);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(Error::state("remove", &path, error));
        }
        _ => {}
    }
    point("destroy.removing.done");

    inner.store.end(id, &end).await?;
    point("destroy.destroyed");
    inner.count_end();
    Ok(())
}

pub(crate) fn has_ended(state: State) -> bool {
    matches!(state, State::Destroyed | State::Failed)
}
