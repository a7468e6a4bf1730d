//! What the engine remembers: sandboxes, their journal, processes.
//!
//! [`Store`] is the few questions and statements the engine needs, so that another database can stand behind it; every
//! method is one transaction. Records are private: nothing outside the engine sees how state is kept.
//!
//! A transition writes its journal entry and the new state together, before the act. Not here: deciding what a record
//! that an interrupted process left means (see `recovery`).

mod record;
mod rows;
mod schema;
mod sqlite;

use belljar_policy::{ProcessId, SandboxId};

pub(crate) use record::{
    Details, EnforcementRecord, ExitRecord, ProcessRecord, ProcessStatus, SandboxRecord, State,
    WorkspaceRecord,
};
pub(crate) use sqlite::SqliteStore;

use crate::Result;

/// A step of a sandbox's life, written to the journal before it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Reserved,
    Starting,
    Configuring,
    Ready,
    Ensuring,
    Applying,
    Resetting,
    Stopping,
    Removing,
}

impl Step {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Starting => "starting",
            Self::Configuring => "configuring",
            Self::Ready => "ready",
            Self::Ensuring => "ensuring",
            Self::Applying => "applying",
            Self::Resetting => "resetting",
            Self::Stopping => "stopping",
            Self::Removing => "removing",
        }
    }
}

/// Which sandboxes to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Creating, ready, paused or destroying.
    Live,
    /// A transition that began and has not ended: creating or destroying.
    Unfinished,
    /// Live ones that end with the engine that made them.
    Ephemeral,
}

/// How a sandbox's life ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was destroyed, or went by itself for the given reason.
    Destroyed(Option<String>),
    /// It never became ready.
    Failed(String),
}

#[async_trait::async_trait]
pub(crate) trait Store: Send + Sync {
    /// The four characters that every id made with this store begins with.
    fn node(&self) -> &str;

    /// Adds a sandbox that is about to be started, with both steps. `SandboxExists` if a live one has its name.
    async fn reserve(&self, record: &SandboxRecord) -> Result<()>;

    /// Notes that a step is about to happen.
    async fn journal(&self, id: &SandboxId, step: Step) -> Result<()>;

    /// Notes a step and what is known about the sandbox by now.
    async fn describe(&self, id: &SandboxId, step: Step, details: &Details) -> Result<()>;

    /// Notes that the sandbox is ready; whoever worked on it no longer does.
    async fn ready(&self, id: &SandboxId) -> Result<()>;

    /// Puts `worker` in the place of `seen` as the engine at work on the sandbox, notes the steps that it will take, and
    /// moves the sandbox to `state`. False, and nothing changed, if somebody was faster.
    async fn claim(
        &self,
        id: &SandboxId,
        seen: Option<&str>,
        worker: &str,
        steps: &[Step],
        state: Option<State>,
    ) -> Result<bool>;

    /// Takes `worker` away from the sandbox.
    async fn release(&self, id: &SandboxId, worker: &str) -> Result<()>;

    /// Ends the sandbox's life: its name is free, its journal is gone, processes that still ran are lost.
    async fn end(&self, id: &SandboxId, end: &End) -> Result<()>;

    /// Moves the idle clock.
    async fn touch(&self, id: &SandboxId) -> Result<()>;

    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>>;

    /// The live sandbox of that name.
    async fn sandbox_named(&self, name: &str) -> Result<Option<SandboxRecord>>;

    async fn sandboxes(&self, which: Which) -> Result<Vec<SandboxRecord>>;

    /// The steps in the sandbox's journal, oldest first.
    async fn steps(&self, id: &SandboxId) -> Result<Vec<String>>;

    /// Whether a command of `--ensure`, given by its hash, has succeeded in this sandbox.
    async fn is_ensured(&self, id: &SandboxId, hash: &str) -> Result<bool>;

    async fn mark_ensured(&self, id: &SandboxId, hash: &str) -> Result<()>;

    /// Adds a process that is about to be started, and moves the sandbox's idle clock.
    async fn add_process(&self, record: &ProcessRecord) -> Result<()>;

    /// Makes another engine the attendant of a process that runs; false if somebody was faster.
    async fn take_over(&self, id: &ProcessId, from: &str, to: &str) -> Result<bool>;

    async fn process_started(&self, id: &ProcessId, pid: u32) -> Result<()>;

    /// Records how a process ended, unless its end is recorded already.
    async fn process_ended(
        &self,
        id: &ProcessId,
        status: ProcessStatus,
        exit: Option<&ExitRecord>,
    ) -> Result<()>;

    async fn process(&self, id: &ProcessId) -> Result<Option<ProcessRecord>>;

    /// Processes of one sandbox, or of all, newest first.
    async fn processes(&self, sandbox: Option<&SandboxId>) -> Result<Vec<ProcessRecord>>;

    /// Processes whose end is not recorded.
    async fn unfinished_processes(&self) -> Result<Vec<ProcessRecord>>;

    /// Forgets ended sandboxes and processes whose time has passed; returns the processes, whose logs may go.
    async fn prune(&self, ended_before_ms: i64) -> Result<Vec<ProcessId>>;

    /// True at most once per `interval_ms` over all processes that share the store.
    async fn claim_turn(&self, job: &str, interval_ms: i64) -> Result<bool>;

    /// Does what keeps the store small and fast; called when nobody waits.
    async fn maintain(&self) -> Result<()>;
}
