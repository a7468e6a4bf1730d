//! Coming back to a process that somebody else started, or that outlived its attendant.

use std::sync::Arc;
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::ProcessId;
use belljar_protocol::v1;
use belljar_protocol::v1::frame::Body;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::attendance::{Attended, Reservation};
use super::place::Place;
use super::pump::{HOST_GRACE, Pump};
use super::turns::Turn;
use super::{EVENTS, Process, ProcessControl};
use crate::agent::AgentError;
use crate::engine::Inner;
use crate::store::{ProcessRecord, ProcessStatus};
use crate::time::now_ms;
use crate::{DEFAULT_MEMORY_CAP, Error, Result};

/// Attends to a running process again. Its events begin after what its log already has.
pub(crate) async fn attach(inner: &Arc<Inner>, id: &ProcessId) -> Result<Process> {
    let record = inner.store.process(id).await?.ok_or_else(|| Error::process_not_found(id))?;
    if record.finished_at.is_some() {
        return Err(Error::new(Code::ProcessEnded, format!("process `{id}` has ended"))
            .with_remedy("read its log instead"));
    }
    let Some(reservation) = take_over(inner, &record).await? else {
        return Err(Error::new(
            Code::ConflictingOptions,
            format!("somebody else attends to process `{id}`"),
        )
        .with_remedy("read its log instead"));
    };
    let (sender, events) = mpsc::channel(EVENTS);
    let pump = resume(inner, &record, reservation, Some(sender)).await?;
    let control = pump.control.clone();
    tokio::spawn(pump.run());
    Ok(Process {
        id: id.clone(),
        sandbox: record.sandbox,
        events,
        control,
        stripped_environment: Vec::new(),
        findings: record.details.findings,
        memory_cap: DEFAULT_MEMORY_CAP,
        logged: true,
    })
}

/// Finds out about a process whose attendant died: one that has ended meanwhile gets its output and end recorded, one
/// that the agent does not know is lost. One that runs is attended to by an engine that lives long, and left alone by
/// others.
pub(crate) async fn settle(inner: &Arc<Inner>, record: &ProcessRecord) -> Result<()> {
    let Some(reservation) = inner.attended.reserve(&record.id) else { return Ok(()) };
    if !is_unattended(inner, record)? {
        return Ok(());
    }
    let live = match inner.live(&record.sandbox).await {
        Ok(live) => live,
        Err(error)
            if error.code() == Code::SandboxGone || error.code() == Code::SandboxNotFound =>
        {
            return inner.store.process_ended(&record.id, ProcessStatus::Lost, None).await;
        }
        Err(error) => return Err(error),
    };
    if inner.attends {
        // The agent tells by itself whether it runs, has ended, or is not known.
        if become_attendant(inner, record).await? {
            tokio::spawn(resume(inner, record, reservation, None).await?.run());
        }
        return Ok(());
    }
    let connection = live.connection(inner).await?;
    let answer = connection.ask(Body::ListProcesses(v1::ListProcesses {})).await?;
    let Body::ProcessList(list) = answer else {
        return Err(AgentError::breach("no list of processes").into());
    };
    match list.processes.iter().find(|state| state.process == record.id.as_str()) {
        Some(state) if state.running => {}
        Some(_) => {
            if become_attendant(inner, record).await? {
                let pump = resume(inner, record, reservation, None).await?;
                inner.background.spawn(pump.run());
            }
        }
        None => inner.store.process_ended(&record.id, ProcessStatus::Lost, None).await?,
    }
    Ok(())
}

/// The attendant of a process, where that is this engine; it becomes so where nobody attends.
pub(super) async fn attend(
    inner: &Arc<Inner>,
    record: &ProcessRecord,
) -> Result<Option<Arc<Attended>>> {
    if let Some(attended) = inner.attended.get(&record.id) {
        return Ok(Some(attended));
    }
    let Some(reservation) = take_over(inner, record).await? else { return Ok(None) };
    let pump = resume(inner, record, reservation, None).await?;
    tokio::spawn(pump.run());
    Ok(inner.attended.get(&record.id))
}

/// Becomes the attendant in place of one that is gone; `None` if it is not, or somebody was faster.
async fn take_over(inner: &Arc<Inner>, record: &ProcessRecord) -> Result<Option<Reservation>> {
    let Some(reservation) = inner.attended.reserve(&record.id) else { return Ok(None) };
    let taken = is_unattended(inner, record)? && become_attendant(inner, record).await?;
    Ok(taken.then_some(reservation))
}

/// False if somebody was faster, or the process has ended.
async fn become_attendant(inner: &Inner, record: &ProcessRecord) -> Result<bool> {
    let token = inner.presence.token()?;
    inner.store.take_over(&record.id, &record.attendant, token).await
}

/// Whether the attendant on record is gone. Precondition: the process is reserved, so nobody in this engine attends to
/// it; if this engine is on record all the same, an earlier attempt came no further.
fn is_unattended(inner: &Inner, record: &ProcessRecord) -> Result<bool> {
    Ok(record.attendant == inner.presence.token()? || inner.presence.is_gone(&record.attendant)?)
}

/// An attendant that goes on after what the log has.
async fn resume(
    inner: &Arc<Inner>,
    record: &ProcessRecord,
    reservation: Reservation,
    events: Option<mpsc::Sender<super::ProcessEvent>>,
) -> Result<Pump> {
    let live = inner.live(&record.sandbox).await?;
    let connection = live.connection(inner).await?;
    let place = Place::open(inner, &record.id)?;
    let received = place.received();
    let stream = connection.request(Body::Attach(v1::Attach {
        process: record.id.as_str().to_owned(),
        stdout_offset: received.stdout,
        stderr_offset: received.stderr,
    }))?;
    let stream = Arc::new(stream);
    let takes_input = record.details.takes_input();
    let control = ProcessControl::new(record.id.clone(), takes_input, Arc::clone(&stream));
    let baseline = live.baseline().await;
    let ago = Duration::from_millis(u64::try_from(now_ms() - record.started_at).unwrap_or(0));
    let begun = Instant::now().checked_sub(ago).unwrap_or_else(Instant::now);
    // However long ago its timeout passed, the agent gets time to tell how it ended.
    let deadline = record
        .timeout_ms
        .map(|timeout| (begun + Duration::from_millis(timeout)).max(Instant::now()) + HOST_GRACE);
    Ok(Pump {
        inner: Arc::clone(inner),
        live,
        process: record.id.clone(),
        stream,
        attendance: reservation.attend(&record.sandbox, control.clone(), received),
        control,
        place,
        events,
        baseline,
        begun,
        deadline,
        unrecorded_pid: None,
        turn: Turn::over(),
        closed: false,
    })
}
