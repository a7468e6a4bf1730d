//! A sandbox that this process talks to.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError};
use std::time::Instant;

use belljar_backend::{Backend, Counters};
use belljar_policy::{SandboxId, TenantId};
use belljar_protocol::v1;
use tokio::net::UnixStream;
use tokio::sync::Mutex;

use crate::agent::{AgentError, Connection, Report, Reporter};
use crate::destroy::Gone;
use crate::engine::Inner;
use crate::{Error, tools};

pub(crate) struct Live {
    pub(crate) id: SandboxId,
    pub(crate) tenant: TenantId,
    pub(crate) backend: Arc<dyn Backend>,
    connection: Mutex<Option<Arc<Connection>>>,
    /// The counters when they were last looked at. All zero in a sandbox that this process has just made.
    counted: std::sync::Mutex<Option<Counters>>,
    /// When they were last looked at, and by one at a time.
    looked: Mutex<Option<Instant>>,
    /// It is being destroyed: nobody connects any more.
    ended: AtomicBool,
}

impl Live {
    /// A sandbox that this process has just started.
    pub(crate) fn started(
        id: SandboxId,
        tenant: TenantId,
        backend: Arc<dyn Backend>,
        connection: Arc<Connection>,
    ) -> Self {
        Self {
            id,
            tenant,
            backend,
            connection: Mutex::new(Some(connection)),
            counted: std::sync::Mutex::new(Some(Counters::default())),
            looked: Mutex::new(None),
            ended: AtomicBool::new(false),
        }
    }

    /// A sandbox that somebody started.
    pub(crate) fn found(id: SandboxId, tenant: TenantId, backend: Arc<dyn Backend>) -> Self {
        Self {
            id,
            tenant,
            backend,
            connection: Mutex::new(None),
            counted: std::sync::Mutex::new(None),
            looked: Mutex::new(None),
            ended: AtomicBool::new(false),
        }
    }

    /// The connection to the agent, made anew where there is none that works.
    pub(crate) async fn connection(&self, inner: &Arc<Inner>) -> crate::Result<Arc<Connection>> {
        let mut connection = self.connection.lock().await;
        if let Some(connection) = connection.as_ref().filter(|connection| connection.is_open()) {
            return Ok(Arc::clone(connection));
        }
        *connection = None;
        if self.ended.load(Ordering::Acquire) {
            return Err(Error::sandbox_gone(self.id.as_str()));
        }
        let socket = match self.backend.connect(&self.id).await {
            Ok(socket) => socket,
            Err(error) => {
                // An agent that cannot be reached because it is gone is not an error of the backend.
                if self.backend.is_alive(&self.id).await.is_ok_and(|alive| !alive) {
                    inner.check_later(&self.id);
                    return Err(Error::sandbox_gone(self.id.as_str()));
                }
                return Err(error.into());
            }
        };
        let has_tools = tools::exist(inner, &self.id).await;
        let fresh = open(inner, &self.id, &self.tenant, socket, None, has_tools)?;
        *connection = Some(Arc::clone(&fresh));
        Ok(fresh)
    }

    /// The connection to the agent, if there is one that works.
    pub(crate) async fn known_connection(&self) -> Option<Arc<Connection>> {
        self.connection.lock().await.clone().filter(|connection| connection.is_open())
    }

    /// Ends the connection for good; whoever waits for something on it is told that the sandbox is gone.
    pub(crate) async fn close(&self) {
        self.ended.store(true, Ordering::Release);
        if let Some(connection) = self.connection.lock().await.take() {
            connection.close();
        }
    }

    /// Calls of tools are for whoever comes next: the connection stays for as long as a process is attended to.
    pub(crate) async fn withdraw_tools(&self) {
        if let Some(connection) = self.connection.lock().await.as_ref() {
            connection.withdraw_tools();
        }
    }

    /// The counters before a process runs: as they were last seen, so that a command need not wait for them. What was
    /// counted since is told with the next command that asks.
    pub(crate) async fn baseline(&self) -> Counters {
        match self.counted() {
            Some(counters) => counters,
            None => self.counters().await.unwrap_or_default(),
        }
    }

    /// The counters as they are now. Many who ask at once share a look that began after each of them had asked.
    pub(crate) async fn counters(&self) -> Option<Counters> {
        let asked = Instant::now();
        let mut looked = self.looked.lock().await;
        if looked.is_some_and(|looked| looked >= asked) {
            return self.counted();
        }
        let begun = Instant::now();
        let counters = self.backend.counters(&self.id).await.ok()?;
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner) = Some(counters);
        *looked = Some(begun);
        Some(counters)
    }

    fn counted(&self) -> Option<Counters> {
        *self.counted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connects to an agent, and answers its sandbox's calls of tools where it has any.
pub(crate) fn open(
    inner: &Arc<Inner>,
    id: &SandboxId,
    tenant: &TenantId,
    socket: UnixStream,
    configure: Option<v1::Configure>,
    has_tools: bool,
) -> Result<Arc<Connection>, AgentError> {
    let (calls, called) = tools::channel();
    let connection = Connection::open(socket, configure, reporter(inner, id, tenant, calls))?;
    if has_tools {
        tools::attend(inner, id, tenant, &connection, called);
    }
    Ok(connection)
}

/// What the engine does with what an agent reports by itself.
fn reporter(
    inner: &Arc<Inner>,
    id: &SandboxId,
    tenant: &TenantId,
    calls: tools::Sender,
) -> Reporter {
    // Weak: a connection is owned by the engine, not the other way round.
    let inner = Arc::downgrade(inner);
    let (id, tenant) = (id.clone(), tenant.clone());
    Box::new(move |report| {
        let Some(inner) = inner.upgrade() else { return };
        match report {
            Report::Event(v1::event::What::ProgramDenied(denied)) => {
                inner.audit.program_denied(&tenant, &id, &denied);
            }
            Report::Event(v1::event::What::LeaseEnded(ended)) => {
                inner.reap_later(&id, if ended.idle { Gone::Idle } else { Gone::LeaseEnded });
            }
            // An agent that calls more often than there is room for gets no answers.
            Report::ToolCall(call) => drop(calls.try_send(tools::Told::Call(call))),
            Report::ToolCancel(cancel) => drop(calls.try_send(tools::Told::Cancel(cancel.call))),
            Report::Alive => {
                let id = id.clone();
                let task = inner.clone();
                inner.background.spawn(async move {
                    if let Err(error) = task.store.touch(&id).await {
                        tracing::debug!(%error, sandbox = %id, "the idle clock was not moved");
                    }
                });
            }
        }
    })
}
