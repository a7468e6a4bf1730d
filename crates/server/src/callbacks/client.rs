//! One client that is connected: calls go out, answers find who waits for them.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_api::v1;
use tokio::sync::{Semaphore, SemaphorePermit, mpsc, oneshot};

use super::{CallError, MAX_CALLS};

/// Messages on their way to a client: all its calls, and that they are no longer wanted.
const OUTGOING: usize = 2 * MAX_CALLS as usize + 1;

/// Decisions that a client is asked for at once. More wait for their turn, and leave room for calls of tools.
const MAX_DECISIONS: usize = MAX_CALLS as usize * 3 / 4;

/// Nobody waits longer, whatever they say.
const MAX_DEADLINE: Duration = Duration::from_secs(600);

/// A client that is connected, or was.
#[derive(Debug)]
pub(crate) struct Client {
    outgoing: mpsc::Sender<v1::ServerCallback>,
    decisions: Semaphore,
    calls: Mutex<Calls>,
}

#[derive(Debug, Default)]
struct Calls {
    last: u64,
    waiting: HashMap<u64, oneshot::Sender<v1::CallbackAnswer>>,
    gone: bool,
}

impl Client {
    /// With what is to be sent to it.
    pub(crate) fn new() -> (Arc<Self>, mpsc::Receiver<v1::ServerCallback>) {
        let (outgoing, messages) = mpsc::channel(OUTGOING);
        let decisions = Semaphore::new(MAX_DECISIONS);
        (Arc::new(Self { outgoing, decisions, calls: Mutex::default() }), messages)
    }

    /// Asks for a decision, once it is its turn; the deadline is for both.
    pub(super) async fn decide(
        self: &Arc<Self>,
        call: v1::CallbackCall,
        deadline: Duration,
    ) -> Result<v1::CallbackAnswer, CallError> {
        let decided = async {
            let _turn: SemaphorePermit<'_> =
                self.decisions.acquire().await.map_err(|_| CallError::Vanished)?;
            self.ask(call, deadline).await
        };
        tokio::time::timeout(deadline, decided).await.unwrap_or(Err(CallError::TimedOut))
    }

    /// Asks and waits. `call` needs no id and no deadline. Who stops waiting takes the question back.
    pub(super) async fn ask(
        self: &Arc<Self>,
        mut call: v1::CallbackCall,
        deadline: Duration,
    ) -> Result<v1::CallbackAnswer, CallError> {
        let deadline = deadline.min(MAX_DEADLINE);
        let (sender, answer) = oneshot::channel();
        let waiting = self.begin(sender)?;
        call.call_id = waiting.id;
        call.deadline_ms = u64::try_from(deadline.as_millis()).unwrap_or(u64::MAX);
        self.tell(v1::ServerCallback { call: Some(call), ..Default::default() })?;
        match tokio::time::timeout(deadline, answer).await {
            Ok(Ok(answer)) => Ok(answer),
            // The other end is dropped only when the client leaves.
            Ok(Err(_)) => Err(CallError::Vanished),
            Err(_) => Err(CallError::TimedOut),
        }
    }

    fn begin(
        self: &Arc<Self>,
        answer: oneshot::Sender<v1::CallbackAnswer>,
    ) -> Result<Waiting, CallError> {
        let mut calls = self.lock();
        if calls.gone {
            return Err(CallError::Vanished);
        }
        if calls.waiting.len() >= MAX_CALLS as usize {
            return Err(CallError::Busy);
        }
        calls.last += 1;
        let id = calls.last;
        calls.waiting.insert(id, answer);
        Ok(Waiting { client: Arc::clone(self), id })
    }

    /// Never waits: a client that takes nothing off its connection is busy.
    pub(crate) fn tell(&self, message: v1::ServerCallback) -> Result<(), CallError> {
        self.outgoing.try_send(message).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => CallError::Busy,
            mpsc::error::TrySendError::Closed(_) => CallError::Vanished,
        })
    }

    /// Hands an answer to who waits for it. Nobody may, any more.
    pub(crate) fn answer(&self, answer: v1::CallbackAnswer) {
        let waiting = self.lock().waiting.remove(&answer.call_id);
        if let Some(waiting) = waiting {
            let _ = waiting.send(answer);
        }
    }

    /// The client is gone: whoever waits for it is told at once.
    pub(super) fn leave(&self) {
        let mut calls = self.lock();
        calls.gone = true;
        calls.waiting.clear();
        self.decisions.close();
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A question that is asked, until dropped.
struct Waiting {
    client: Arc<Client>,
    id: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if self.client.lock().waiting.remove(&self.id).is_some() {
            let cancel = v1::CallbackCancel { call_id: self.id };
            let cancel = v1::ServerCallback { cancel: Some(cancel), ..Default::default() };
            // A client that has no room for it gets to know when it answers too late.
            let _ = self.client.tell(cancel);
        }
    }
}
