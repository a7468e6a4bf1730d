//! Processes that nobody needs to hold on to: started, waited for and acted on by their ids.

use std::sync::Arc;
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::{ProcessId, SandboxId};

use super::attach::attend;
use super::attendance::Standing;
use super::follow::POLL;
use super::start::Outcome;
use super::{ProcessControl, ProcessInfo, info, start};
use crate::engine::Inner;
use crate::policy::Permitted;
use crate::store::ProcessRecord;
use crate::{Error, Result};

/// A process that was started for nobody in particular.
#[derive(Clone, Debug, PartialEq)]
pub struct Started {
    pub process: ProcessInfo,
    /// False: the idempotency key was known, and this is the process of that time.
    pub created: bool,
    /// Names of environment variables that were refused.
    pub stripped_environment: Vec<String>,
}

/// Starts a command whose output goes to its log alone: it never waits for a reader.
pub(crate) async fn start_detached(
    inner: &Arc<Inner>,
    id: &SandboxId,
    permitted: Permitted,
) -> Result<Started> {
    let (_, stripped_environment) = permitted.request.environment.clone().strip();
    let (record, created) = match start::begin(inner, id, permitted, None).await? {
        Outcome::Begun(begun) => (begun.record, true),
        Outcome::Known(process) => (known(inner, &process).await?, false),
    };
    Ok(Started { process: info(inner, record), created, stripped_environment })
}

/// Waits for the end of a process; after `timeout` its record is returned as it is.
pub(crate) async fn wait(
    inner: &Arc<Inner>,
    id: &ProcessId,
    timeout: Option<Duration>,
) -> Result<ProcessInfo> {
    let ended = async {
        loop {
            let record = known(inner, id).await?;
            if record.finished_at.is_some() {
                return Ok::<_, Error>(record);
            }
            match attend(inner, &record).await {
                Ok(Some(attended)) => {
                    let mut standing = attended.standing();
                    let left = standing.wait_for(|standing| *standing != Standing::Attended);
                    // An error would mean that the attendant is gone: look again.
                    let _ = left.await;
                }
                Ok(None) | Err(_) => tokio::time::sleep(POLL).await,
            }
        }
    };
    let record = match timeout {
        None => ended.await?,
        Some(timeout) => match tokio::time::timeout(timeout, ended).await {
            Ok(record) => record?,
            Err(_) => known(inner, id).await?,
        },
    };
    Ok(info(inner, record))
}

/// A handle to a process that runs, whoever attends to it.
pub(crate) async fn control(inner: &Arc<Inner>, id: &ProcessId) -> Result<ProcessControl> {
    let record = known(inner, id).await?;
    if record.finished_at.is_some() {
        return Err(Error::new(Code::ProcessEnded, format!("process `{id}` has ended"))
            .with_remedy("read its log instead"));
    }
    // One that is paused would not take note of anything.
    let live = inner.live(&record.sandbox).await?;
    if let Some(attended) = attend(inner, &record).await? {
        return Ok(attended.control.clone());
    }
    let takes_input = record.details.takes_input();
    Ok(ProcessControl::from_afar(id.clone(), takes_input, live.connection(inner).await?))
}

async fn known(inner: &Inner, id: &ProcessId) -> Result<ProcessRecord> {
    inner.store.process(id).await?.ok_or_else(|| Error::process_not_found(id))
}
