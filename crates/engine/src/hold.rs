//! Pausing, resuming, and giving a sandbox more time.
//!
//! A paused sandbox keeps everything and runs nothing. It is on record as paused before it stands still and until it goes
//! on, so whatever dies in between, a sandbox that may stand still is never taken for one that answers; pausing and
//! resuming again are always possible. Its lease runs on, and the host ends it when that is over (see `recovery`).

use std::sync::Arc;
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::SandboxId;
use belljar_protocol::v1;
use belljar_protocol::v1::frame::Body;

use crate::engine::Inner;
use crate::fault::point;
use crate::live::Live;
use crate::store::{SandboxRecord, State, Step};
use crate::time::{duration_ms, now_ms};
use crate::transition::{Work, claim, release};
use crate::{Error, Lease, Result};

/// An agent that has not taken note of its lease by then has a problem of its own.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) async fn pause(inner: &Arc<Inner>, id: &SandboxId) -> Result<()> {
    let record = claimed(inner, id).await?;
    let _work = Work::on(inner, id);
    let done = match record.state {
        State::Ready => stand_still(inner, &record).await,
        // Whoever noted it may have come no further.
        State::Paused => stand_still_again(inner, &record).await,
        state => Err(Error::sandbox_not_ready(id.as_str(), state)),
    };
    release(inner, id).await?;
    done
}

pub(crate) async fn resume(inner: &Arc<Inner>, id: &SandboxId) -> Result<()> {
    let record = claimed(inner, id).await?;
    let _work = Work::on(inner, id);
    let done = match record.state {
        State::Ready => Ok(()),
        State::Paused => go_on(inner, &record).await,
        state => Err(Error::sandbox_not_ready(id.as_str(), state)),
    };
    release(inner, id).await?;
    done
}

/// Changes the lease: what is given starts anew from now.
pub(crate) async fn extend(inner: &Arc<Inner>, id: &SandboxId, lease: Lease) -> Result<()> {
    let record = claimed(inner, id).await?;
    let _work = Work::on(inner, id);
    let done = match record.state {
        State::Ready | State::Paused => set_lease(inner, &record, lease).await,
        state => Err(Error::sandbox_not_ready(id.as_str(), state)),
    };
    release(inner, id).await?;
    done
}

async fn claimed(inner: &Inner, id: &SandboxId) -> Result<SandboxRecord> {
    claim(inner, id, &[], None, None).await?.ok_or_else(|| Error::sandbox_gone(id.as_str()))
}

async fn stand_still(inner: &Inner, record: &SandboxRecord) -> Result<()> {
    let (id, token) = (&record.id, inner.presence.token()?);
    let backend = inner.backends.get(&record.backend)?;
    inner.store.claim(id, Some(token), token, &[Step::Pausing], Some(State::Paused), None).await?;
    point("pause.noted");
    if let Err(error) = backend.pause(id).await {
        inner.store.claim(id, Some(token), token, &[], Some(State::Ready), None).await?;
        return Err(error.into());
    }
    point("pause.done");
    inner.store.paused(id).await
}

async fn stand_still_again(inner: &Inner, record: &SandboxRecord) -> Result<()> {
    Ok(inner.backends.get(&record.backend)?.pause(&record.id).await?)
}

async fn go_on(inner: &Inner, record: &SandboxRecord) -> Result<()> {
    inner.store.journal(&record.id, Step::Resuming).await?;
    point("resume.noted");
    inner.backends.get(&record.backend)?.resume(&record.id).await?;
    point("resume.done");
    inner.store.resumed(&record.id).await
}

async fn set_lease(inner: &Arc<Inner>, record: &SandboxRecord, lease: Lease) -> Result<()> {
    let now = now_ms();
    let limit = |given: Option<Duration>, known: Option<u64>| match given {
        None => known,
        Some(Duration::ZERO) => None,
        Some(limit) => Some(duration_ms(limit).max(1)),
    };
    let idle_ms = limit(lease.idle, record.idle_ms);
    let hard_ms = limit(lease.hard, record.hard_ms);
    let hard_from = if lease.hard.is_some() { now } else { record.hard_from };
    // The agent's clocks start when it is told.
    let passed = u64::try_from(now - hard_from).unwrap_or(0);
    let message = Body::Lease(v1::Lease {
        idle_ms: idle_ms.unwrap_or(0),
        hard_ms: hard_ms.map_or(0, |hard| hard.saturating_sub(passed).max(1)),
    });
    let live = match inner.known_live(&record.id) {
        Some(live) => live,
        None => Arc::new(Live::found(
            record.id.clone(),
            record.tenant.clone(),
            inner.backends.get(&record.backend)?,
        )),
    };
    let connection = live.connection(inner).await?;
    if record.state == State::Paused {
        // It reads this first when it goes on.
        connection.tell(message)?;
    } else {
        match tokio::time::timeout(PATIENCE, connection.ask(message)).await {
            Ok(answer) => drop(answer?),
            Err(_) => {
                return Err(Error::new(
                    Code::AgentFailed,
                    format!("sandbox `{}` does not take note of its lease", record.id),
                ));
            }
        }
    }
    inner.store.set_lease(&record.id, idle_ms, hard_ms, hard_from).await
}
