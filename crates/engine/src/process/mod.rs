//! Commands in a sandbox.
//!
//! A process is durable: its record is written before it starts, its output goes to a log on the host, and its end is
//! recorded whether or not anybody waits. A [`Process`] is one attendant's view of it; dropping it kills nothing.
//!
//! While somebody holds a [`Process`], output waits for them: a slow reader slows the command down, as a pipe would,
//! and memory stays bounded. Once it is dropped, or where nobody ever held one, output goes to the log alone, and any
//! number of [`Follower`]s read it from there.

mod attach;
mod attendance;
mod capture;
mod control;
mod durable;
mod exit;
mod follow;
mod place;
mod pump;
mod start;
mod turns;

use std::time::{Duration, SystemTime};

use belljar_policy::scan::Finding;
use belljar_policy::{ProcessId, SandboxId, TenantId};
use tokio::sync::mpsc;

pub(crate) use attach::{attach, settle};
pub(crate) use attendance::Registry;
pub use capture::Captured;
pub use control::ProcessControl;
pub use durable::Started;
pub(crate) use durable::{control, start_detached, wait};
pub use exit::{Exit, ExitStatus, Reason, Usage};
pub use follow::{Followed, Follower};
pub(crate) use start::start;
pub(crate) use turns::Turns;

use crate::engine::Inner;
use crate::log::{Channel, Extent, Offsets};
use crate::store::{ExitRecord, ProcessRecord};
use crate::time::from_ms;
use crate::{Result, store};
use belljar_codes::Code;
use capture::Capture;

/// Events under way between the attendant and its reader; with pieces of 64 KiB, at most a megabyte.
const EVENTS: usize = 16;

/// What happens to a process, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ProcessEvent {
    Started {
        /// Inside the sandbox.
        pid: u32,
    },
    Output {
        channel: Channel,
        data: Vec<u8>,
    },
    Exited(Exit),
}

/// A process that is attended to.
#[derive(Debug)]
pub struct Process {
    id: ProcessId,
    sandbox: SandboxId,
    events: mpsc::Receiver<ProcessEvent>,
    control: ProcessControl,
    stripped_environment: Vec<String>,
    findings: Vec<Finding>,
    memory_cap: usize,
    logged: bool,
}

/// What came of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completed {
    pub exit: Exit,
    pub stdout: Captured,
    pub stderr: Captured,
}

/// Where a process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ProcessStatus {
    Starting,
    Running,
    Succeeded,
    Failed,
    Cancelled,
    Lost,
}

/// A process as it is recorded.
#[derive(Clone, Debug, PartialEq)]
pub struct ProcessInfo {
    pub id: ProcessId,
    pub sandbox: SandboxId,
    pub tenant: TenantId,
    pub status: ProcessStatus,
    pub command: String,
    pub pid: Option<u32>,
    pub started_at: SystemTime,
    pub finished_at: Option<SystemTime>,
    pub exit: Option<Exit>,
    pub timeout: Option<Duration>,
    pub terminal: bool,
    /// Whether its input can be written.
    pub stdin: bool,
    /// When its record and log go.
    pub expires_at: Option<SystemTime>,
    /// How far its output is known.
    pub log: Offsets,
    /// The oldest output that can be read again.
    pub kept_from: Offsets,
    /// What stands out in it, where it is Python code.
    pub findings: Vec<Finding>,
}

impl Process {
    #[must_use]
    pub fn id(&self) -> &ProcessId {
        &self.id
    }

    #[must_use]
    pub fn sandbox(&self) -> &SandboxId {
        &self.sandbox
    }

    /// Names of environment variables that were refused.
    #[must_use]
    pub fn stripped_environment(&self) -> &[String] {
        &self.stripped_environment
    }

    /// What stands out in it, where it is Python code.
    #[must_use]
    pub fn findings(&self) -> &[Finding] {
        &self.findings
    }

    /// A handle to write to and act on the process while its events are read elsewhere.
    #[must_use]
    pub fn control(&self) -> ProcessControl {
        self.control.clone()
    }

    /// The next event; `None` after [`ProcessEvent::Exited`], or when another attendant took the process over.
    pub async fn next(&mut self) -> Option<ProcessEvent> {
        self.events.recv().await
    }

    /// See [`ProcessControl::write_stdin`].
    pub async fn write_stdin(&self, data: &[u8]) -> Result<()> {
        self.control.write_stdin(data).await
    }

    /// See [`ProcessControl::close_stdin`].
    pub async fn close_stdin(&self) -> Result<()> {
        self.control.close_stdin().await
    }

    /// See [`ProcessControl::signal`].
    pub async fn signal(&self, signal: i32) -> Result<()> {
        self.control.signal(signal).await
    }

    /// See [`ProcessControl::resize`].
    pub async fn resize(&self, rows: u16, columns: u16) -> Result<()> {
        self.control.resize(rows, columns).await
    }

    /// See [`ProcessControl::cancel`].
    pub async fn cancel(&self, grace: Duration) -> Result<()> {
        self.control.cancel(grace).await
    }

    /// Reads to the end and keeps output up to the request's cap.
    pub async fn wait(mut self) -> Result<Completed> {
        let mut stdout = Capture::new(self.memory_cap);
        let mut stderr = Capture::new(self.memory_cap);
        loop {
            match self.next().await {
                Some(ProcessEvent::Started { .. }) => {}
                Some(ProcessEvent::Output { channel: Channel::Stdout, data }) => stdout.push(&data),
                Some(ProcessEvent::Output { channel: Channel::Stderr, data }) => stderr.push(&data),
                Some(ProcessEvent::Exited(exit)) => {
                    let (stdout, stderr) = (stdout.finish(self.logged), stderr.finish(self.logged));
                    return Ok(Completed::new(exit, stdout, stderr));
                }
                None => {
                    return Err(crate::Error::new(
                        Code::Interrupted,
                        format!("process `{}` was taken over by another attendant", self.id),
                    ));
                }
            }
        }
    }
}

impl Completed {
    fn new(mut exit: Exit, stdout: Captured, stderr: Captured) -> Self {
        if stdout.truncated || stderr.truncated {
            exit.limits_hit.push(Code::OutputTruncated);
        }
        Self { exit, stdout, stderr }
    }
}

impl ProcessStatus {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        }
    }
}

impl From<store::ProcessStatus> for ProcessStatus {
    fn from(status: store::ProcessStatus) -> Self {
        match status {
            store::ProcessStatus::Starting => Self::Starting,
            store::ProcessStatus::Running => Self::Running,
            store::ProcessStatus::Succeeded => Self::Succeeded,
            store::ProcessStatus::Failed => Self::Failed,
            store::ProcessStatus::Cancelled => Self::Cancelled,
            store::ProcessStatus::Lost => Self::Lost,
        }
    }
}

/// A process as callers see it.
pub(crate) fn info(inner: &Inner, record: ProcessRecord) -> ProcessInfo {
    let attended = inner.attended.get(&record.id).map(|attended| attended.ends());
    let end = record.exit.as_ref().and_then(ExitRecord::log_end).or(attended);
    let directory = inner.directory.process(&record.id);
    let extent = Extent::of(&directory, end).unwrap_or_else(|error| {
        tracing::debug!(%error, process = %record.id, "its log cannot be looked at");
        Extent::default()
    });
    ProcessInfo::new(record, extent, inner.retention)
}

impl ProcessInfo {
    fn new(record: ProcessRecord, log: Extent, retention: Duration) -> Self {
        Self {
            tenant: record.tenant,
            timeout: record.timeout_ms.map(Duration::from_millis),
            terminal: record.details.terminal,
            stdin: record.details.stdin,
            expires_at: record.finished_at.and_then(|at| from_ms(at).checked_add(retention)),
            log: log.end,
            kept_from: log.kept_from,
            findings: record.details.findings,
            id: record.id,
            sandbox: record.sandbox,
            status: record.status.into(),
            command: record.command,
            pid: record.pid,
            started_at: from_ms(record.started_at),
            finished_at: record.finished_at.map(from_ms),
            // Whose end nobody saw has one all the same.
            exit: record.exit.as_ref().map(Exit::from_record).or_else(|| {
                let lost = record.status == store::ProcessStatus::Lost;
                lost.then(|| Exit::unseen(Reason::Lost, Duration::ZERO))
            }),
        }
    }
}
