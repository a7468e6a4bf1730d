//! Asking for approval: one question per destination at a time, bounded in number and time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use belljar_policy::document::Transport;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{Approval, Approver, Asked, Identity};

/// Questions that one sandbox may have open.
const MAX_PENDING: usize = 64;
/// Destinations that are remembered as granted.
const MAX_GRANTED: usize = 4096;
/// After a no, the same question is not asked again for this long.
const DENIED_FOR: Duration = Duration::from_secs(5);

type Place = (String, u16, Transport, Option<(String, String)>);

/// The questions and answers of one sandbox.
pub(crate) struct Approvals {
    identity: Identity,
    approver: Arc<dyn Approver>,
    state: Mutex<State>,
}

/// Those who wait for one answer. When the last of them is gone the question is withdrawn.
struct Waiting {
    answer: watch::Receiver<Option<Approval>>,
    _withdrawn: DropGuard,
}

#[derive(Default)]
struct State {
    pending: HashMap<Place, Weak<Waiting>>,
    denied: HashMap<Place, Instant>,
    granted: HashSet<(String, u16, Transport)>,
}

impl Approvals {
    pub(crate) fn new(identity: Identity, approver: Arc<dyn Approver>) -> Self {
        Self { identity, approver, state: Mutex::default() }
    }

    /// Whether somebody said yes for as long as the sandbox lives.
    pub(crate) fn granted(&self, host: &str, port: u16, transport: Transport) -> bool {
        let granted = &self.lock().granted;
        !granted.is_empty() && granted.contains(&(host.to_owned(), port, transport))
    }

    /// Waits for an answer. Everyone who asks the same meanwhile gets the same answer.
    pub(crate) async fn ask(self: &Arc<Self>, asked: Asked) -> Approval {
        let place = place(&asked);
        let waiting = {
            let mut state = self.lock();
            state.denied.retain(|_, until| *until > Instant::now());
            if state.denied.contains_key(&place) {
                return Approval::Deny;
            }
            match state.pending.get(&place).and_then(Weak::upgrade) {
                Some(waiting) => waiting,
                None if state.pending.len() >= MAX_PENDING => return Approval::Deny,
                None => {
                    let (sender, answer) = watch::channel(None);
                    let withdrawn = CancellationToken::new();
                    tokio::spawn(Arc::clone(self).put(asked, sender, withdrawn.clone()));
                    let waiting = Waiting { answer, _withdrawn: withdrawn.drop_guard() };
                    let waiting = Arc::new(waiting);
                    state.pending.insert(place, Arc::downgrade(&waiting));
                    waiting
                }
            }
        };
        let mut answer = waiting.answer.clone();
        match answer.wait_for(Option::is_some).await {
            Ok(found) => found.unwrap_or(Approval::Deny),
            Err(_) => Approval::Deny,
        }
    }

    async fn put(
        self: Arc<Self>,
        asked: Asked,
        sender: watch::Sender<Option<Approval>>,
        withdrawn: CancellationToken,
    ) {
        let place = place(&asked);
        let answer = tokio::select! {
            answer = timeout(asked.wait, self.approver.ask(&self.identity, &asked)) => {
                answer.unwrap_or(Approval::Deny)
            }
            () = withdrawn.cancelled() => {
                let mut state = self.lock();
                // Somebody else may have come and asked anew meanwhile.
                if state.pending.get(&place).is_some_and(|waiting| waiting.strong_count() == 0) {
                    state.pending.remove(&place);
                }
                return;
            }
        };
        let mut state = self.lock();
        state.pending.remove(&place);
        match answer {
            Approval::Deny if state.denied.len() < MAX_PENDING * 4 => {
                state.denied.insert(place, Instant::now() + DENIED_FOR);
            }
            Approval::Sandbox | Approval::Always if state.granted.len() < MAX_GRANTED => {
                state.granted.insert((asked.host, asked.port, asked.transport));
            }
            _ => {}
        }
        drop(state);
        sender.send_replace(Some(answer));
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn place(asked: &Asked) -> Place {
    (asked.host.clone(), asked.port, asked.transport, asked.request.clone())
}
