//! Asking for approval: one question per destination at a time, bounded in number and time.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use belljar_policy::document::Transport;
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

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

#[derive(Default)]
struct State {
    pending: HashMap<Place, watch::Receiver<Option<Approval>>>,
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
        let place: Place = (asked.host.clone(), asked.port, asked.transport, asked.request.clone());
        let mut answer = {
            let mut state = self.lock();
            state.denied.retain(|_, until| *until > Instant::now());
            if state.denied.contains_key(&place) {
                return Approval::Deny;
            }
            match state.pending.get(&place) {
                Some(answer) => answer.clone(),
                None if state.pending.len() >= MAX_PENDING => return Approval::Deny,
                None => {
                    let (sender, answer) = watch::channel(None);
                    state.pending.insert(place.clone(), answer.clone());
                    tokio::spawn(Arc::clone(self).put(place, asked, sender));
                    answer
                }
            }
        };
        match answer.wait_for(Option::is_some).await {
            Ok(found) => found.unwrap_or(Approval::Deny),
            Err(_) => Approval::Deny,
        }
    }

    async fn put(
        self: Arc<Self>,
        place: Place,
        asked: Asked,
        sender: watch::Sender<Option<Approval>>,
    ) {
        let answer = tokio::select! {
            answer = timeout(asked.wait, self.approver.ask(&self.identity, &asked)) => {
                answer.unwrap_or(Approval::Deny)
            }
            // The table below holds one receiver itself; the question stays for late comers until its time is over,
            // unless the sandbox's doors are closed and the table with them.
            () = sender.closed() => Approval::Deny,
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
