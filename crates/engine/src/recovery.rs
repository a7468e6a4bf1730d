//! Making the record true again after something died.
//!
//! Several processes share a state directory and any of them may be killed at any point. The presence of an engine
//! tells whether it is still at work; what one that is gone began is undone (a sandbox that was being created) or
//! finished (one that was being destroyed). Everything here may run at the same time in several processes.

use std::fs;
use std::sync::Arc;
use std::time::Duration;

use belljar_policy::{ProcessId, SandboxId};
use tokio::task::AbortHandle;
use tokio::time::MissedTickBehavior;

use crate::destroy::{self, Gone};
use crate::engine::Inner;
use crate::lock::FileLock;
use crate::log::bound_logs;
use crate::network::authority;
use crate::process;
use crate::sandbox::{expires_at_ms, hard_end_ms};
use crate::store::{Owner, SandboxRecord, State, Which};
use crate::time::now_ms;
use crate::{Error, Result, tools};

/// How long the next command waits for what an interrupted one left to be gone.
const PATIENCE: Duration = Duration::from_secs(5);

/// At most this often does opening an engine look at every sandbox; those that list them always do.
const SWEEP_INTERVAL_MS: i64 = 10_000;

/// How often an engine that takes care looks at everything.
const TURN: Duration = Duration::from_secs(10);

/// The agent ends its sandbox by itself when the lease runs out; this long after that somebody else does.
const LEASE_SLACK_MS: i64 = 60_000;

/// Old records are looked for this often: it reads all of them.
const PRUNE_INTERVAL_MS: i64 = 3_600_000;

/// Settles what interrupted processes left: quick, because there is rarely anything.
pub(crate) async fn recover(inner: &Arc<Inner>) -> Result<()> {
    let unfinished = inner.store.sandboxes(Which::Unfinished).await?;
    let ephemeral = inner.store.sandboxes(Which::Ephemeral).await?;
    if unfinished.is_empty() && ephemeral.is_empty() {
        return Ok(());
    }
    let work = Arc::clone(inner);
    let settled = tokio::spawn(async move {
        for record in unfinished {
            warn(&record.id, destroy::settle(&work, &record.id).await);
        }
        for record in ephemeral {
            if matches!(record.state, State::Ready | State::Paused) {
                warn(&record.id, end_unowned(&work, &record).await);
            }
        }
    });
    // Something that cannot be killed now must not keep every other command from working.
    let _ = tokio::time::timeout(PATIENCE, settled).await;
    Ok(())
}

/// Looks at every sandbox, process and file once.
pub(crate) async fn sweep(inner: &Arc<Inner>) -> Result<()> {
    let processes = inner.store.unfinished_processes().await?;
    for record in inner.store.sandboxes(Which::Live).await? {
        if matches!(record.state, State::Ready | State::Paused) {
            let runs = processes.iter().any(|process| process.sandbox == record.id);
            warn(&record.id, end_if_over(inner, &record, runs).await);
            if inner.attends && !inner.gates.holds(&record.id) {
                warn(&record.id, inner.open_gate(&record).await);
            }
        }
    }
    for record in processes {
        if let Err(error) = process::settle(inner, &record).await {
            tracing::debug!(%error, process = %record.id, "a process was not settled");
        }
    }
    if inner.store.claim_turn("prune", PRUNE_INTERVAL_MS).await? {
        let kept_ms = i64::try_from(inner.retention.as_millis()).unwrap_or(i64::MAX);
        for process in inner.store.prune(now_ms().saturating_sub(kept_ms)).await? {
            remove_log(inner, &process);
        }
        inner.gates.prune_logs(inner.retention);
        authority::prune(inner).await?;
    }
    if inner.attends {
        drop(bound_logs(inner));
    }
    remove_free_locks(inner)?;
    inner.store.maintain().await
}

/// Settles everything there is, and then goes on looking for as long as the engine is open.
pub(crate) async fn take_care(inner: &Arc<Inner>) -> AbortHandle {
    let work = Arc::clone(inner);
    let settled = tokio::spawn(async move { look_after(&work).await });
    let _ = tokio::time::timeout(PATIENCE, settled).await;
    // Weak: the engine ends when its users let go of it.
    let weak = Arc::downgrade(inner);
    let caretaker = tokio::spawn(async move {
        let mut turns = tokio::time::interval(TURN);
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
        turns.reset();
        loop {
            turns.tick().await;
            let Some(inner) = weak.upgrade() else { return };
            look_after(&inner).await;
        }
    });
    caretaker.abort_handle()
}

async fn look_after(inner: &Arc<Inner>) {
    let done = async {
        recover(inner).await?;
        sweep(inner).await
    };
    tools::reach_all(inner).await;
    if let Err(error) = done.await {
        tracing::warn!(%error, "looking after the state directory failed");
    }
}

/// A sweep when one is due.
pub(crate) async fn sweep_in_turn(inner: &Arc<Inner>) -> Result<()> {
    if inner.store.claim_turn("sweep", SWEEP_INTERVAL_MS).await? {
        sweep(inner).await
    } else {
        Ok(())
    }
}

/// Destroys an ephemeral sandbox whose maker is gone, or whose process has ended.
async fn end_unowned(inner: &Arc<Inner>, record: &SandboxRecord) -> Result<()> {
    let reason = match record.owner.as_deref().map(Owner::parse) {
        Some(Owner::Engine(token)) if inner.presence.is_gone(&token)? => {
            "the run that made it was interrupted"
        }
        Some(Owner::Process(id)) if has_ended(inner, &id).await? => destroy::PROCESS_ENDED,
        _ => return Ok(()),
    };
    destroy::reap(inner, &record.id, reason).await
}

/// A process that nobody knows has ended long ago.
async fn has_ended(inner: &Inner, id: &ProcessId) -> Result<bool> {
    let record = inner.store.process(id).await?;
    Ok(record.is_none_or(|record| record.finished_at.is_some()))
}

/// Destroys a sandbox whose agent is gone or whose lease is over. `runs`: whether there is a process in it.
async fn end_if_over(inner: &Arc<Inner>, record: &SandboxRecord, runs: bool) -> Result<()> {
    let paused = record.state == State::Paused;
    // A running process keeps a sandbox in use, whoever watches it; one that is paused is in use by nobody.
    let end = if runs && !paused { hard_end_ms(record) } else { expires_at_ms(record) };
    let slack = if paused { 0 } else { LEASE_SLACK_MS };
    let gone = if end.is_some_and(|at| at.saturating_add(slack) < now_ms()) {
        Gone::out_of_time(record)
    } else if !inner.backends.get(&record.backend)?.is_alive(&record.id).await? {
        Gone::of(record, runs)
    } else {
        return Ok(());
    };
    destroy::reap(inner, &record.id, gone.reason()).await
}

/// Removes lock files of sessions and engines that nobody holds: they mean something only while they are held.
fn remove_free_locks(inner: &Inner) -> Result<()> {
    let directory = inner.directory.sessions();
    let entries = fs::read_dir(&directory).map_err(|e| Error::state("list", &directory, e))?;
    for path in entries.flatten().map(|entry| entry.path()) {
        if let Ok(Some(lock)) = FileLock::try_acquire_existing(&path)
            && let Err(error) = lock.remove()
        {
            tracing::debug!(%error, path = %path.display(), "a lock file was left behind");
        }
    }
    Ok(())
}

pub(crate) fn remove_log(inner: &Inner, process: &ProcessId) {
    let path = inner.directory.process(process);
    if let Err(error) = fs::remove_dir_all(&path)
        && error.kind() != std::io::ErrorKind::NotFound
    {
        tracing::debug!(%error, path = %path.display(), "a log was left behind");
    }
}

/// One sandbox that cannot be settled must not keep the others from being used.
fn warn(id: &SandboxId, result: Result<()>) {
    if let Err(error) = result {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        tracing::warn!(sandbox = %id, %error, cause, "a sandbox was not settled; the next command tries again");
    }
}
