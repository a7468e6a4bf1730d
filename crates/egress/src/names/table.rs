//! The names of one sandbox: resolved, checked, pinned.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use hickory_proto::rr::{Name, RecordType};
use ipnet::IpNet;
use tokio::sync::Semaphore;

use super::chain::Reply;
use super::pins::{Pinned, Pins};
use super::resolver::{ResolveError, Resolver};
use crate::flow::Rate;
use crate::{Reason, address};

/// Questions of one sandbox that are open at the upstream servers, so that none keeps them from the others.
const MAX_OPEN: usize = 64;
/// Answers that are kept for their time to live.
const MAX_KEPT: usize = 512;
/// Names with a server of their own.
const MAX_CHOSEN: usize = 4096;
/// However long the owner of a name says.
const KEPT_MAX: Duration = Duration::from_secs(300);

/// Why a name has no usable address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unresolved {
    /// It does not exist, or has no address of this kind.
    Missing {
        exists: bool,
    },
    /// Every address it has is one that may not be reached.
    NotPublic(IpAddr),
    Failed,
    /// The sandbox asks for too many names.
    TooMany,
}

impl Unresolved {
    pub(crate) fn reason(self) -> Reason {
        match self {
            Self::NotPublic(_) => Reason::AddressNotPublic,
            Self::Missing { .. } | Self::Failed => Reason::ResolveFailed,
            Self::TooMany => Reason::TooMany,
        }
    }
}

pub(crate) struct Names {
    resolver: Arc<Resolver>,
    /// As often as this the sandbox may ask for a name: by a question, or by a connection to it.
    questions: Rate,
    open: Semaphore,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    pins: Pins,
    kept: HashMap<(String, RecordType), (Instant, Reply)>,
    /// Which server is asked for a name, where it is not the usual ones.
    chosen: HashMap<String, SocketAddr>,
}

impl Names {
    pub(crate) fn new(resolver: Arc<Resolver>, questions_per_second: u32) -> Self {
        let (questions, open) = (Rate::new(questions_per_second), Semaphore::new(MAX_OPEN));
        Self { resolver, questions, open, state: Mutex::default() }
    }

    /// Whether the sandbox may ask for one more name now.
    pub(crate) fn question_allowed(&self) -> bool {
        self.questions.take()
    }

    /// Resolves a (normalised, allowed) name and leaves out what may not be reached. Nothing is pinned.
    pub(crate) async fn resolve(
        &self,
        name: &str,
        kind: RecordType,
        named: &[IpNet],
    ) -> Result<Reply, Unresolved> {
        let mut reply = match self.kept(name, kind) {
            Some(reply) => reply,
            None => self.fetch(name, kind).await.map_err(|error| {
                tracing::debug!(name, %error, "a name was not resolved");
                Unresolved::Failed
            })?,
        };
        let Some(first) = reply.addresses.first().copied() else {
            return Err(Unresolved::Missing { exists: reply.exists });
        };
        reply.addresses.retain(|address| address::admits(*address, named));
        if reply.addresses.is_empty() {
            return Err(Unresolved::NotPublic(first));
        }
        Ok(reply)
    }

    /// From here on `server` is asked for the name; the usual ones where there is none.
    pub(crate) fn ask_at(&self, name: &str, server: Option<SocketAddr>) {
        let mut state = self.lock();
        if state.chosen.get(name).copied() == server {
            return;
        }
        // What another one said does not count.
        state.kept.retain(|(known, _), _| known != name);
        match server {
            None => {
                state.chosen.remove(name);
            }
            Some(server) => {
                if state.chosen.len() >= MAX_CHOSEN {
                    state.chosen.clear();
                    state.kept.clear();
                }
                state.chosen.insert(name.to_owned(), server);
            }
        }
    }

    /// Remembers that the sandbox is told this answer.
    pub(crate) fn pin(&self, name: &str, reply: &Reply) {
        let now = Instant::now();
        let mut state = self.lock();
        for address in &reply.addresses {
            state.pins.pin(now, *address, name, reply.ttl);
        }
    }

    pub(crate) fn stand_in(&self, name: &str) -> Ipv4Addr {
        self.lock().pins.stand_in(Instant::now(), name)
    }

    /// The names that an address was given for.
    pub(crate) fn names(&self, address: IpAddr) -> Vec<Pinned> {
        self.lock().pins.names(Instant::now(), address)
    }

    /// Where to connect for `name`: `wanted` while it is the name's, else where the name is now.
    pub(crate) async fn locate(
        &self,
        name: &str,
        wanted: Option<IpAddr>,
        named: &[IpNet],
    ) -> Result<IpAddr, Unresolved> {
        if let Some(wanted) = wanted {
            let pinned = self.names(wanted);
            let fresh = pinned.iter().any(|pinned| pinned.fresh && pinned.name == name);
            if fresh && address::admits(wanted, named) {
                return Ok(wanted);
            }
        }
        let kinds = match wanted {
            Some(IpAddr::V6(_)) => [RecordType::AAAA, RecordType::A],
            _ => [RecordType::A, RecordType::AAAA],
        };
        let mut last = Unresolved::Failed;
        for kind in kinds {
            // Who names hosts to a proxy asks no questions, and asks all the same.
            if self.kept(name, kind).is_none() && !self.question_allowed() {
                return Err(Unresolved::TooMany);
            }
            match self.resolve(name, kind, named).await {
                Ok(reply) => {
                    self.pin(name, &reply);
                    let known = wanted.filter(|wanted| reply.addresses.contains(wanted));
                    return Ok(known.unwrap_or(reply.addresses[0]));
                }
                // That there is an address which may not be reached says more than that the other kind has none.
                Err(unresolved) if kind == kinds[0] => last = unresolved,
                Err(Unresolved::NotPublic(address)) => last = Unresolved::NotPublic(address),
                Err(_) => {}
            }
        }
        Err(last)
    }

    fn kept(&self, name: &str, kind: RecordType) -> Option<Reply> {
        let now = Instant::now();
        let state = self.lock();
        let (until, reply) = state.kept.get(&(name.to_owned(), kind))?;
        let left = until.checked_duration_since(now).filter(|left| !left.is_zero())?;
        Some(Reply { ttl: left, ..reply.clone() })
    }

    async fn fetch(&self, name: &str, kind: RecordType) -> Result<Reply, ResolveError> {
        let asked = Name::from_ascii(format!("{name}.")).map_err(|_| ResolveError::Unreadable)?;
        let chosen = self.lock().chosen.get(name).copied();
        let _open = self.open.acquire().await.map_err(|_| ResolveError::NoUpstream)?;
        let mut reply = self.resolver.resolve(&asked, kind, chosen).await?;
        reply.ttl = reply.ttl.min(KEPT_MAX);
        if !reply.addresses.is_empty() && !reply.ttl.is_zero() {
            let now = Instant::now();
            let kept = &mut self.lock().kept;
            if kept.len() >= MAX_KEPT {
                kept.retain(|_, (until, _)| *until > now);
            }
            if kept.len() >= MAX_KEPT {
                kept.clear();
            }
            kept.insert((name.to_owned(), kind), (now + reply.ttl, reply.clone()));
        }
        Ok(reply)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
