//! Commands in a sandbox.
//!
//! A process is durable: its record is written before it starts, its output goes to a log on the host, and its end is
//! recorded whether or not anybody waits. A [`Process`] is one attendant's view of it; dropping it kills nothing.
//!
//! While somebody holds a [`Process`], output waits for them: a slow reader slows the command down, as a pipe would,
//! and memory stays bounded. Once it is dropped, output goes to the log alone.

mod attach;
mod capture;
mod control;
mod exit;
mod place;
mod pump;
mod start;

use std::time::SystemTime;

use belljar_policy::{ProcessId, SandboxId};
use tokio::sync::mpsc;

pub(crate) use attach::{attach, settle};
pub use capture::Captured;
pub use control::ProcessControl;
pub use exit::{Exit, ExitStatus, Reason, Usage};
pub(crate) use start::start;

use crate::log::Channel;
use crate::store::ProcessRecord;
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
    pub status: ProcessStatus,
    pub command: String,
    pub pid: Option<u32>,
    pub started_at: SystemTime,
    pub finished_at: Option<SystemTime>,
    pub exit: Option<Exit>,
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
    pub async fn cancel(&self, grace: std::time::Duration) -> Result<()> {
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
                Some(ProcessEvent::Exited(mut exit)) => {
                    let (stdout, stderr) = (stdout.finish(self.logged), stderr.finish(self.logged));
                    if stdout.truncated || stderr.truncated {
                        exit.limits_hit.push(Code::OutputTruncated);
                    }
                    return Ok(Completed { exit, stdout, stderr });
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

impl From<ProcessRecord> for ProcessInfo {
    fn from(record: ProcessRecord) -> Self {
        Self {
            id: record.id,
            sandbox: record.sandbox,
            status: record.status.into(),
            command: record.command,
            pid: record.pid,
            started_at: from_ms(record.started_at),
            finished_at: record.finished_at.map(from_ms),
            exit: record.exit.as_ref().map(Exit::from_record),
        }
    }
}
