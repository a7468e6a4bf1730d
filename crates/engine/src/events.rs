//! What happens to sandboxes and processes, told in order.
//!
//! Each change of a sandbox or process is told by an event that is stored together with the change: whoever reads events
//! misses nothing and hears of nothing that did not happen, however often it or the engine was restarted meanwhile.
//! Events are numbered without gaps over the whole state directory; a caller with a narrower scope sees fewer of them.
//! They are kept as long as the records they tell of.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use belljar_policy::{ProcessId, SandboxId, TenantId};
use tokio::sync::watch;

use crate::engine::Inner;
use crate::{Result, Scope};

/// Changes that another process made on the same state directory are seen this late at most.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Events read at a time.
const BATCH: usize = 256;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EventKind {
    /// It was reserved; nothing of it exists yet.
    SandboxCreated,
    SandboxReady,
    SandboxPaused,
    SandboxResumed,
    SandboxExtended,
    SandboxDestroyed,
    SandboxFailed,
    ProcessStarted,
    ProcessEnded,
    /// Of the sandbox whose files were kept.
    SnapshotCreated,
    /// Of the sandbox that got the files.
    SnapshotRestored,
    SnapshotRemoved,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub seq: u64,
    pub at: SystemTime,
    pub tenant: TenantId,
    pub sandbox: SandboxId,
    pub process: Option<ProcessId>,
    pub kind: EventKind,
    /// The sandbox's `name`; of an end its `reason`, of a process its `status`, `exit_code` and `signal`, of a snapshot
    /// its id and name as `snapshot` and `snapshot_name`.
    pub detail: BTreeMap<String, String>,
}

impl EventKind {
    pub const ALL: [Self; 12] = [
        Self::SandboxCreated,
        Self::SandboxReady,
        Self::SandboxPaused,
        Self::SandboxResumed,
        Self::SandboxExtended,
        Self::SandboxDestroyed,
        Self::SandboxFailed,
        Self::ProcessStarted,
        Self::ProcessEnded,
        Self::SnapshotCreated,
        Self::SnapshotRestored,
        Self::SnapshotRemoved,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::SandboxCreated => "sandbox.created",
            Self::SandboxReady => "sandbox.ready",
            Self::SandboxPaused => "sandbox.paused",
            Self::SandboxResumed => "sandbox.resumed",
            Self::SandboxExtended => "sandbox.extended",
            Self::SandboxDestroyed => "sandbox.destroyed",
            Self::SandboxFailed => "sandbox.failed",
            Self::ProcessStarted => "process.started",
            Self::ProcessEnded => "process.ended",
            Self::SnapshotCreated => "snapshot.created",
            Self::SnapshotRestored => "snapshot.restored",
            Self::SnapshotRemoved => "snapshot.removed",
        }
    }

    /// The kind of that name.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == text)
    }
}

/// Events in a scope, one after the other.
pub struct Events {
    inner: Arc<Inner>,
    scope: Scope,
    /// Everything up to here has been given or is not for this reader. `None`: the store could not tell yet.
    cursor: Option<u64>,
    read: VecDeque<Event>,
    changes: watch::Receiver<u64>,
}

impl Events {
    pub(crate) fn new(inner: &Arc<Inner>, scope: Scope, since: Option<u64>) -> Self {
        Self {
            inner: Arc::clone(inner),
            scope,
            cursor: since.or_else(|| inner.store.last_event().ok()),
            read: VecDeque::new(),
            changes: inner.store.changes(),
        }
    }

    /// Waits for the next event. May be dropped and called again without losing one.
    pub async fn next(&mut self) -> Result<Event> {
        loop {
            if let Some(event) = self.next_now().await? {
                return Ok(event);
            }
            let _ = tokio::time::timeout(LOOK_AGAIN, self.changes.changed()).await;
        }
    }

    /// The next event that has happened; `None` if that was all.
    pub async fn next_now(&mut self) -> Result<Option<Event>> {
        if self.read.is_empty() {
            // Before reading: what changes meanwhile wakes us again.
            self.changes.borrow_and_update();
            let since = match self.cursor {
                Some(since) => since,
                None => self.inner.store.last_event()?,
            };
            let batch = self.inner.store.events(&self.scope, since, BATCH).await?;
            self.cursor = Some(batch.up_to);
            self.read.extend(batch.events);
        }
        Ok(self.read.pop_front())
    }
}

impl std::fmt::Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events")
            .field("scope", &self.scope)
            .field("cursor", &self.cursor)
            .finish_non_exhaustive()
    }
}
