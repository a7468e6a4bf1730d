//! The flows that are open, so that a change of rules can cut those it no longer allows.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_policy::document::Transport;
use tokio_util::sync::CancellationToken;

use crate::Rules;

/// What must still be allowed for a flow to go on.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) host: String,
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) transport: Transport,
    pub(crate) request: Option<(String, String)>,
    /// Its requests are judged one by one.
    pub(crate) inspected: bool,
    /// Somebody said yes to it.
    pub(crate) approved: bool,
}

/// Rules and open flows under one lock: a flow is entered under the very rules that allowed it.
#[derive(Debug)]
pub(crate) struct Live {
    state: Mutex<State>,
    closed: CancellationToken,
}

#[derive(Debug)]
struct State {
    rules: Arc<Rules>,
    /// Without a claim: cut only when everything is.
    flows: HashMap<u64, (Option<Claim>, CancellationToken)>,
    next: u64,
}

/// Rules that cannot change while this is held.
pub(crate) struct Locked<'a> {
    live: &'a Arc<Live>,
    state: &'a mut State,
}

/// An open flow. Leaving is dropping it.
#[derive(Debug)]
pub(crate) struct Entered {
    live: Arc<Live>,
    number: u64,
    token: CancellationToken,
}

impl Live {
    pub(crate) fn new(rules: Rules) -> Self {
        let state = State { rules: Arc::new(rules), flows: HashMap::new(), next: 0 };
        Self { state: Mutex::new(state), closed: CancellationToken::new() }
    }

    pub(crate) fn rules(&self) -> Arc<Rules> {
        self.with(|state| Arc::clone(&state.rules))
    }

    /// Runs `act` under the lock, with the rules of that moment and the means to enter a flow under them.
    pub(crate) fn locked<T>(self: &Arc<Self>, act: impl FnOnce(&mut Locked<'_>) -> T) -> T {
        self.with(|state| act(&mut Locked { live: self, state }))
    }

    /// New rules; every flow for which `holds` is false (asked with the old and the new rules) is cut.
    pub(crate) fn change(&self, rules: Rules, holds: impl Fn(&Rules, &Rules, &Claim) -> bool) {
        self.with(|state| {
            let old = std::mem::replace(&mut state.rules, Arc::new(rules));
            for (claim, token) in state.flows.values() {
                if claim.as_ref().is_some_and(|claim| !holds(&old, &state.rules, claim)) {
                    token.cancel();
                }
            }
        });
    }

    pub(crate) fn count(&self) -> usize {
        self.with(|state| state.flows.len())
    }

    /// Ends with everything.
    pub(crate) fn closed(&self) -> &CancellationToken {
        &self.closed
    }

    fn with<T>(&self, act: impl FnOnce(&mut State) -> T) -> T {
        // The state is whole between any two statements under this lock.
        act(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Locked<'_> {
    pub(crate) fn rules(&self) -> Arc<Rules> {
        Arc::clone(&self.state.rules)
    }

    pub(crate) fn enter(&mut self, claim: Option<Claim>) -> Entered {
        let token = self.live.closed.child_token();
        let number = self.state.next;
        self.state.next += 1;
        self.state.flows.insert(number, (claim, token.clone()));
        Entered { live: Arc::clone(self.live), number, token }
    }
}

impl Entered {
    pub(crate) fn token(&self) -> &CancellationToken {
        &self.token
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.live.with(|state| state.flows.remove(&self.number));
    }
}
