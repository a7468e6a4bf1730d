//! The right to move a sandbox from one state to another.
//!
//! At most one engine is at work on a sandbox at a time: its token stands in the sandbox's record, put there by a
//! compare-and-swap together with the journal entry. An engine that died holding it is recognised by its presence, and
//! whoever comes next takes its place. There is no lock file to make or to forget.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_codes::Code;
use belljar_policy::SandboxId;

use crate::destroy::has_ended;
use crate::engine::Inner;
use crate::store::{End, SandboxRecord, State, Step};
use crate::{Error, Result, network};

/// How long another engine may be at work on the same sandbox. Longer than any start or stop takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Transitions take milliseconds, so the first look comes soon.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// How often a store that has no room is asked again.
const ROOM_POLL: Duration = Duration::from_millis(250);

/// What came of asking for the right.
pub(crate) enum Claim {
    /// It is ours until it is released or the sandbox ends. The record is as it was before.
    Taken(Box<SandboxRecord>),
    /// There is nothing to move any more.
    Ended,
    /// Somebody else has it.
    Busy,
}

/// Takes the right, waiting for whoever has it; `None` if the sandbox has ended. `reason`: why it is about to end, for
/// whoever has to finish that.
pub(crate) async fn claim(
    inner: &Inner,
    id: &SandboxId,
    steps: &[Step],
    state: Option<State>,
    reason: Option<&str>,
) -> Result<Option<SandboxRecord>> {
    let deadline = Instant::now() + PATIENCE;
    let mut pause = FIRST_PAUSE;
    loop {
        match try_claim(inner, id, steps, state, reason).await? {
            Claim::Busy if Instant::now() < deadline => {
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(LONGEST_PAUSE);
            }
            Claim::Busy => {
                return Err(Error::new(
                    Code::SandboxNotReady,
                    format!("another process has been at work on sandbox `{id}` for too long"),
                )
                .with_remedy("look for a `belljar` process that hangs, and end it"));
            }
            Claim::Taken(record) => return Ok(Some(*record)),
            Claim::Ended => return Ok(None),
        }
    }
}

/// Takes the right if nobody who is alive has it.
async fn try_claim(
    inner: &Inner,
    id: &SandboxId,
    steps: &[Step],
    state: Option<State>,
    reason: Option<&str>,
) -> Result<Claim> {
    let record = inner.store.sandbox(id).await?;
    let record = record.ok_or_else(|| Error::sandbox_not_found(id.as_str()))?;
    try_claim_as_seen(inner, record, steps, state, reason).await
}

/// Takes the right to a sandbox that is still as it was seen, if nobody who is alive has it.
pub(crate) async fn try_claim_as_seen(
    inner: &Inner,
    record: SandboxRecord,
    steps: &[Step],
    state: Option<State>,
    reason: Option<&str>,
) -> Result<Claim> {
    if has_ended(record.state) {
        return Ok(Claim::Ended);
    }
    if let Some(worker) = &record.worker
        && !inner.presence.is_gone(worker)?
    {
        return Ok(Claim::Busy);
    }
    let token = inner.presence.token()?;
    let seen = record.worker.as_deref();
    let taken = inner.store.claim(&record.id, seen, token, steps, state, reason).await?;
    Ok(if taken { Claim::Taken(Box::new(record)) } else { Claim::Busy })
}

/// Gives the right back where the work did not end the sandbox.
///
/// Where the store does not take it, because the disk is full for example, it is tried until it does: while this engine
/// lives nobody else could take its place.
pub(crate) async fn release(inner: &Arc<Inner>, id: &SandboxId) -> Result<()> {
    let token = inner.presence.token()?;
    let released = inner.store.release(id, token).await;
    if released.is_err() {
        let (task, id, token) = (Arc::clone(inner), id.clone(), token.to_owned());
        inner.background.spawn(async move {
            while task.store.release(&id, &token).await.is_err() {
                tokio::time::sleep(ROOM_POLL).await;
            }
        });
    }
    released
}

/// Held during the work: a bug that ends it midway ends the right, too. Whoever comes next finds what the journal says.
pub(crate) struct Work<'a> {
    inner: &'a Arc<Inner>,
    id: &'a SandboxId,
}

impl<'a> Work<'a> {
    pub(crate) fn on(inner: &'a Arc<Inner>, id: &'a SandboxId) -> Self {
        Self { inner, id }
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (inner, id) = (Arc::clone(self.inner), self.id.clone());
            self.inner.background.spawn(async move {
                // Where it fails, it is tried again elsewhere.
                let _ = release(&inner, &id).await;
            });
        }
    }
}

/// Ends the record of a sandbox of which nothing is left. As with [`release`], a store that does not take it now is asked
/// again until it does.
pub(crate) async fn end(inner: &Arc<Inner>, id: &SandboxId, end: End) -> Result<()> {
    network::authority::forget(inner, id);
    let ended = inner.store.end(id, &end).await;
    if ended.is_err() {
        let (task, id) = (Arc::clone(inner), id.clone());
        inner.background.spawn(async move {
            while task.store.end(&id, &end).await.is_err() {
                tokio::time::sleep(ROOM_POLL).await;
            }
        });
    }
    ended
}
