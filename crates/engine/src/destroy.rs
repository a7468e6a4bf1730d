//! Destroying a sandbox: from any state, as often as wanted, by whoever comes first.

use std::collections::BTreeMap;
use std::sync::Arc;

use belljar_policy::SandboxId;

use crate::engine::Inner;
use crate::fault::point;
use crate::sandbox::{expires_at_ms, hard_end_ms};
use crate::store::{End, SandboxRecord, State, Step};
use crate::time::now_ms;
use crate::transition::{Claim, Work, claim, release, try_claim_as_seen};
use crate::{AuditEntry, Error, Result, network};

/// What destroying does, noted before any of it is done.
const STEPS: [Step; 2] = [Step::Stopping, Step::Removing];

/// Why a sandbox failed whose creation nobody finished.
const INTERRUPTED: &str = "the process that was creating it ended before it was ready; what it had made was removed, so \
                           create it again";

/// The record and the agent count the time from moments that are not quite the same.
const CLOCKS_APART_MS: i64 = 1000;

/// Why a sandbox ended that was made for one command.
pub(crate) const PROCESS_ENDED: &str = "its process has ended";

/// Why the end of a sandbox is on record whose destruction somebody asked for and nobody finished.
const RESUMED: &str = "destroying it had been interrupted";

/// Who ends a sandbox that nobody asked to end, in the audit log.
const SYSTEM: &str = "system";

/// Why a sandbox ended that went by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gone {
    /// Nobody used it for as long as it waits.
    Idle,
    /// Used or not.
    LeaseEnded,
    /// Nobody knows why.
    Unexplained,
}

impl Gone {
    /// Of a sandbox whose agent is not there any more.
    pub(crate) async fn found(inner: &Inner, record: &SandboxRecord) -> Result<Self> {
        Ok(Self::of(record, inner.store.runs(&record.id).await?))
    }

    /// The same where it is known whether something ran in it: the idle clock stands still meanwhile, except in one that
    /// is paused.
    pub(crate) fn of(record: &SandboxRecord, runs: bool) -> Self {
        let in_use = runs && record.state != State::Paused;
        let end = if in_use { hard_end_ms(record) } else { expires_at_ms(record) };
        match end {
            Some(at) if is_over(at) => Self::out_of_time(record),
            _ => Self::Unexplained,
        }
    }

    /// Of a sandbox one of whose clocks has run out.
    pub(crate) fn out_of_time(record: &SandboxRecord) -> Self {
        if hard_end_ms(record).is_some_and(is_over) { Self::LeaseEnded } else { Self::Idle }
    }

    pub(crate) const fn reason(self) -> &'static str {
        match self {
            Self::Idle => "it was idle for too long",
            Self::LeaseEnded => "its lease ended",
            Self::Unexplained => "its agent is gone",
        }
    }
}

fn is_over(at: i64) -> bool {
    at <= now_ms().saturating_add(CLOCKS_APART_MS)
}

/// Destroys a sandbox that nobody asked to end, and puts that on record; one that has ended is fine.
pub(crate) async fn reap(inner: &Arc<Inner>, id: &SandboxId, reason: &str) -> Result<()> {
    let claimed = claim(inner, id, &STEPS, Some(State::Destroying), Some(reason)).await?;
    let Some(record) = claimed else { return Ok(()) };
    finish(inner, &record, End::Destroyed(Some(reason.to_owned()))).await?;
    put_on_record(inner, &record, reason);
    Ok(())
}

/// Nobody's request is about it, so nobody else does.
fn put_on_record(inner: &Inner, record: &SandboxRecord, reason: &str) {
    inner.audit.record(AuditEntry {
        actor: SYSTEM.to_owned(),
        tenant: record.tenant.to_string(),
        action: "sandbox.destroy".to_owned(),
        sandbox: Some(record.id.as_str().to_owned()),
        outcome: "ok".to_owned(),
        detail: BTreeMap::from([("reason".to_owned(), reason.to_owned())]),
        ..AuditEntry::default()
    });
}

/// Destroys a sandbox; one that has ended is fine.
pub(crate) async fn destroy(inner: &Arc<Inner>, id: &SandboxId, end: End) -> Result<()> {
    match claim(inner, id, &STEPS, Some(State::Destroying), None).await? {
        Some(record) => finish(inner, &record, end).await,
        None => Ok(()),
    }
}

/// Settles a sandbox whose transition nobody alive is at work on: what was being created is undone, what was being
/// destroyed is finished.
pub(crate) async fn settle(inner: &Arc<Inner>, id: &SandboxId) -> Result<()> {
    // One that has become ready since the caller looked is nobody's to settle.
    let unfinished =
        |record: &SandboxRecord| matches!(record.state, State::Creating | State::Destroying);
    let Some(record) = inner.store.sandbox(id).await?.filter(unfinished) else { return Ok(()) };
    // The state stays as it is, so that whoever goes on where this ends too soon knows what had been begun.
    let claim = try_claim_as_seen(inner, record, &STEPS, None, None).await?;
    let Claim::Taken(record) = claim else { return Ok(()) };
    let noted = inner.store.steps(id).await?.join(" ");
    tracing::info!(sandbox = %id, noted, "what a process that ended had begun is settled");
    if record.state == State::Creating {
        return finish(inner, &record, End::Failed(INTERRUPTED.to_owned())).await;
    }
    // Where nobody had asked for it, whoever began noted why.
    let reason = record.failure.clone();
    finish(inner, &record, End::Destroyed(reason.clone())).await?;
    put_on_record(inner, &record, reason.as_deref().unwrap_or(RESUMED));
    Ok(())
}

/// Stops and removes everything of a sandbox and ends its record.
///
/// Preconditions: the steps are claimed. If this fails, the right is given back and whoever comes next goes on.
async fn finish(inner: &Arc<Inner>, record: &SandboxRecord, end: End) -> Result<()> {
    let _work = Work::on(inner, &record.id);
    let finished = stop_and_remove(inner, record, end).await;
    if finished.is_err() {
        release(inner, &record.id).await?;
    }
    finished
}

async fn stop_and_remove(inner: &Arc<Inner>, record: &SandboxRecord, end: End) -> Result<()> {
    let id = &record.id;
    let backend = inner.backends.get(&record.backend)?;
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
    network::authority::forget(inner, id);
    point("destroy.removing.done");

    inner.store.end(id, &end).await?;
    point("destroy.destroyed");
    inner.count_end();
    Ok(())
}

pub(crate) fn has_ended(state: State) -> bool {
    matches!(state, State::Destroyed | State::Failed)
}
