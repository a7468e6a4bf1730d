//! Making the record true again after something died.
//!
//! Several processes share a state directory and any of them may be killed at any point. A lock that can be taken says
//! that nobody is at work any more; what its holder began is then undone (a sandbox that was being created) or finished
//! (one that was being destroyed). Everything here may run at the same time in several processes.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use belljar_policy::{ProcessId, SandboxId};

use crate::destroy::{self, has_ended, release};
use crate::engine::Inner;
use crate::lock::{DirectoryLock, FileLock};
use crate::process;
use crate::sandbox::expires_at_ms;
use crate::store::{End, SandboxRecord, State, Which};
use crate::time::now_ms;
use crate::{Error, Result};

/// At most this often does opening an engine look at every sandbox; those that list them always do.
const SWEEP_INTERVAL_MS: i64 = 10_000;

/// The agent ends its sandbox by itself when the lease runs out; this long after that somebody else does.
const LEASE_SLACK_MS: i64 = 60_000;

/// How long records and logs of what has ended are kept.
const KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// Settles what interrupted processes left: quick, because there is rarely anything.
pub(crate) async fn recover(inner: &Arc<Inner>) -> Result<()> {
    for record in inner.store.sandboxes(Which::Unfinished).await? {
        warn(&record.id, settle(inner, &record.id).await);
    }
    for record in inner.store.sandboxes(Which::Ephemeral).await? {
        if matches!(record.state, State::Ready | State::Paused) {
            warn(&record.id, end_unowned(inner, &record).await);
        }
    }
    Ok(())
}

/// Looks at every sandbox, process and file once.
pub(crate) async fn sweep(inner: &Arc<Inner>) -> Result<()> {
    for record in inner.store.sandboxes(Which::Live).await? {
        if matches!(record.state, State::Ready | State::Paused) {
            warn(&record.id, end_if_over(inner, &record).await);
        }
    }
    for record in inner.store.unfinished_processes().await? {
        if let Err(error) = process::settle(inner, &record).await {
            tracing::debug!(%error, process = %record.id, "a process was not settled");
        }
    }
    let kept_ms = i64::try_from(KEPT.as_millis()).expect("a week");
    for process in inner.store.prune(now_ms() - kept_ms).await? {
        remove_log(inner, &process);
    }
    remove_free_locks(inner).await?;
    inner.store.maintain().await
}

/// A sweep when one is due.
pub(crate) async fn sweep_in_turn(inner: &Arc<Inner>) -> Result<()> {
    if inner.store.claim_turn("sweep", SWEEP_INTERVAL_MS).await? {
        sweep(inner).await
    } else {
        Ok(())
    }
}

/// Undoes or finishes a transition whose process is gone; leaves one alone that somebody is at work on.
pub(crate) async fn settle(inner: &Arc<Inner>, id: &SandboxId) -> Result<()> {
    let path = inner.directory.sandbox_lock(id);
    let taken = FileLock::try_acquire(&path).map_err(|e| Error::state("lock", &path, e))?;
    let Some(lock) = taken else { return Ok(()) };
    // Somebody may have settled it between our reading and our locking.
    if let Some(record) = inner.store.sandbox(id).await? {
        match record.state {
            State::Creating => {
                let steps = inner.store.steps(id).await?;
                let last = steps.last().map_or("nothing", String::as_str);
                let reason = format!("its creation was interrupted after `{last}` was noted");
                destroy::finish(inner, &record, End::Failed(reason)).await?;
            }
            State::Destroying => destroy::finish(inner, &record, End::Destroyed(None)).await?,
            state if has_ended(state) => {}
            _ => return Ok(()),
        }
    }
    release(lock);
    Ok(())
}

/// Destroys an ephemeral sandbox whose maker is gone.
async fn end_unowned(inner: &Arc<Inner>, record: &SandboxRecord) -> Result<()> {
    let path = inner.directory.owner_lock(&record.id);
    let owner = FileLock::try_acquire(&path).map_err(|e| Error::state("lock", &path, e))?;
    let Some(owner) = owner else { return Ok(()) };
    let end = End::Destroyed(Some("the run that made it was interrupted".to_owned()));
    destroy::destroy(inner, &record.id, end).await?;
    release(owner);
    Ok(())
}

/// Destroys a sandbox whose agent is gone or whose lease is over.
async fn end_if_over(inner: &Arc<Inner>, record: &SandboxRecord) -> Result<()> {
    let reason = if expires_at_ms(record).is_some_and(|at| at + LEASE_SLACK_MS < now_ms()) {
        "its lease ended"
    } else if !inner.backends.get(&record.backend)?.is_alive(&record.id).await? {
        match expires_at_ms(record) {
            Some(at) if at <= now_ms() => "its lease ended",
            _ => "its agent is gone",
        }
    } else {
        return Ok(());
    };
    destroy::destroy(inner, &record.id, End::Destroyed(Some(reason.to_owned()))).await
}

/// Removes lock files that nobody holds and whose sandbox is not live.
async fn remove_free_locks(inner: &Arc<Inner>) -> Result<()> {
    let locks = stray_locks(inner).await?;
    for path in locks {
        if let Ok(Some(lock)) = FileLock::try_acquire_existing(&path) {
            release(lock);
        }
    }
    Ok(())
}

/// Lock files without a live sandbox. Those of sessions always count: they mean something only while they are held.
pub(crate) async fn stray_locks(inner: &Arc<Inner>) -> Result<Vec<std::path::PathBuf>> {
    // Listed before the records are read: a sandbox is recorded after its lock is taken, so a lock of a new sandbox
    // that is seen here is held.
    let mut candidates = Vec::new();
    for (directory, suffixes) in [
        (inner.directory.sandboxes(), &["lock"][..]),
        (inner.directory.sessions(), &["lock", "owner", "ensure"][..]),
    ] {
        let entries = fs::read_dir(&directory).map_err(|e| Error::state("list", &directory, e))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let suffix = path.extension().and_then(|suffix| suffix.to_str());
            if suffix.is_some_and(|suffix| suffixes.contains(&suffix)) {
                candidates.push(path);
            }
        }
    }
    let live: HashSet<String> = inner
        .store
        .sandboxes(Which::Live)
        .await?
        .into_iter()
        .map(|record| record.id.as_str().to_owned())
        .collect();
    let stem = |path: &Path| path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
    candidates.retain(|path| stem(path).is_none_or(|stem| !live.contains(&stem)));
    Ok(candidates)
}

/// Removes the log of a process unless somebody attends to it.
pub(crate) fn remove_log(inner: &Inner, process: &ProcessId) {
    let path = inner.directory.process(process);
    match DirectoryLock::try_acquire(&path) {
        Ok(Some(_lock)) => {
            if let Err(error) = fs::remove_dir_all(&path) {
                tracing::debug!(%error, path = %path.display(), "a log was left behind");
            }
        }
        Ok(None) => {}
        Err(error) => tracing::debug!(%error, path = %path.display(), "a log was left behind"),
    }
}

/// One sandbox that cannot be settled must not keep the others from being used.
fn warn(id: &SandboxId, result: Result<()>) {
    if let Err(error) = result {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        tracing::warn!(sandbox = %id, %error, cause, "a sandbox was not settled; the next command tries again");
    }
}
