//! Whose the connections of sandboxes are: asked of their agents, for records.
//!
//! Nothing waits for it. One question to an agent is under way at a time, with everything that has come up since the
//! last one in it; what finds no room is not asked, and then the process is not known. An agent gets rest after each
//! question, in proportion to what the answer took, so that a sandbox that connects in a loop does not keep it busy.
//!
//! Answers come from inside. They are cut, made inert and written down; nothing is decided by them.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use belljar_egress::{Ends, Identity, Owner, Owners, Search};
use belljar_policy::document::Transport;
use belljar_policy::{ProcessId, SandboxId, shown};
use belljar_protocol::v1::{self, frame::Body};
use tokio::sync::watch;

use crate::agent::AgentError;
use crate::engine::Inner;

/// Connections in one question, as the protocol has it.
const AT_ONCE: usize = 64;
/// Connections of a sandbox that wait to be asked about.
const WAITING: usize = 256;
/// So many times as long as a question took, the next one waits; and never longer than this.
const REST: u32 = 4;
const LONGEST_REST: Duration = Duration::from_millis(250);

/// Asks agents whose connections are. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct OwnerSearch(Arc<Shared>);

#[derive(Default)]
struct Shared {
    /// Weak: the engine owns this.
    engine: OnceLock<Weak<Inner>>,
    sandboxes: Mutex<HashMap<SandboxId, Waiting>>,
}

/// What is to be asked about a sandbox. Is there while somebody asks, or knows that there is nothing to ask.
#[derive(Default)]
struct Waiting {
    connections: VecDeque<Asked>,
    /// The agent is older than the question.
    useless: bool,
}

struct Asked {
    ends: Ends,
    told: watch::Sender<Search>,
}

impl OwnerSearch {
    /// From here on there is somebody to ask.
    pub(crate) fn serve(&self, inner: &Arc<Inner>) {
        let _ = self.0.engine.set(Arc::downgrade(inner));
    }

    /// Forgets a sandbox that is gone.
    pub(crate) fn forget(&self, id: &SandboxId) {
        self.sandboxes().remove(id);
    }

    /// Asks until nothing is left to be asked.
    async fn run(self, id: SandboxId) {
        while let Some(asked) = self.next(&id) {
            let begun = Instant::now();
            match self.ask(&id, &asked).await {
                Ok(owners) => tell(asked, owners),
                Err(error) if error.is_refusal("unknown-request") => {
                    let mut sandboxes = self.sandboxes();
                    if let Some(waiting) = sandboxes.get_mut(&id) {
                        *waiting = Waiting { connections: VecDeque::new(), useless: true };
                    }
                    return;
                }
                Err(error) => tracing::debug!(?error, sandbox = %id, "owners are not known"),
            }
            tokio::time::sleep((begun.elapsed() * REST).min(LONGEST_REST)).await;
        }
    }

    /// What the next question is about. `None`: there is none, and whoever has one begins anew.
    fn next(&self, id: &SandboxId) -> Option<Vec<Asked>> {
        let mut sandboxes = self.sandboxes();
        let waiting = sandboxes.get_mut(id)?;
        // Of those whose connection is over, nobody wants to know any more.
        waiting.connections.retain(|asked| !asked.told.is_closed());
        let count = waiting.connections.len().min(AT_ONCE);
        if count == 0 {
            sandboxes.remove(id);
            return None;
        }
        let asked: Vec<Asked> = waiting.connections.drain(..count).collect();
        for one in &asked {
            one.told.send_replace(Search::Looking);
        }
        Some(asked)
    }

    async fn ask(&self, id: &SandboxId, asked: &[Asked]) -> Result<Vec<v1::Owner>, AgentError> {
        let inner = self.0.engine.get().and_then(Weak::upgrade).ok_or(AgentError::Gone)?;
        let live = inner.known_live(id).ok_or(AgentError::Gone)?;
        drop(inner);
        // Not worth a connection of its own: making one would attend to the sandbox.
        let connection = live.known_connection().await.ok_or(AgentError::Gone)?;
        let connections = asked.iter().map(|asked| message(asked.ends)).collect();
        let question = Body::FindOwners(v1::FindOwners { connections });
        match connection.ask_aside(question).await? {
            Body::Owners(answer) => Ok(answer.owners),
            _ => Err(AgentError::breach("no owners in the answer")),
        }
    }

    fn sandboxes(&self) -> MutexGuard<'_, HashMap<SandboxId, Waiting>> {
        self.0.sandboxes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Owners for OwnerSearch {
    fn search(&self, identity: &Identity, ends: Ends) -> Option<watch::Receiver<Search>> {
        self.0.engine.get()?;
        let id = &identity.sandbox;
        let mut sandboxes = self.sandboxes();
        let idle = !sandboxes.contains_key(id);
        let waiting = sandboxes.entry(id.clone()).or_default();
        if waiting.useless || waiting.connections.len() >= WAITING {
            return None;
        }
        let (told, search) = watch::channel(Search::Waiting);
        waiting.connections.push_back(Asked { ends, told });
        if idle {
            tokio::spawn(self.clone().run(id.clone()));
        }
        Some(search)
    }
}

fn message(ends: Ends) -> v1::Ends {
    let bytes = |end: SocketAddr| match end.ip() {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let transport = match ends.transport {
        Transport::Tcp => v1::Transport::Tcp,
        Transport::Udp => v1::Transport::Udp,
    };
    v1::Ends {
        transport: transport.into(),
        local_address: bytes(ends.local),
        local_port: ends.local.port().into(),
        remote_address: bytes(ends.remote),
        remote_port: ends.remote.port().into(),
    }
}

/// Those of whom nothing was found learn it by the end of their channel.
fn tell(asked: Vec<Asked>, owners: Vec<v1::Owner>) {
    for (asked, owner) in asked.into_iter().zip(owners) {
        if owner.pid != 0 {
            asked.told.send_replace(Search::Found(Owner {
                pid: owner.pid,
                program: shown(&String::from_utf8_lossy(&owner.program)),
                process: ProcessId::parse(&owner.process).ok(),
            }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> (Asked, watch::Receiver<Search>) {
        let end: SocketAddr = "192.0.2.1:1".parse().unwrap();
        let (told, search) = watch::channel(Search::Looking);
        (Asked { ends: Ends { transport: Transport::Tcp, local: end, remote: end }, told }, search)
    }

    #[test]
    fn what_an_agent_says_is_made_inert_and_only_as_much_as_was_asked() {
        let ((one, first), (two, second), (three, third)) = (asked(), asked(), asked());
        let hostile = v1::Owner {
            pid: 7,
            program: [b"\x1b]0;x\x07\xff".as_slice(), &[b'x'; 4000]].concat(),
            process: "../../etc".to_owned(),
        };
        tell(vec![one, two, three], vec![v1::Owner::default(), hostile]);
        assert!(first.has_changed().is_err() && *first.borrow() == Search::Looking);
        let Search::Found(owner) = second.borrow().clone() else { panic!("not found") };
        assert_eq!((owner.pid, owner.process), (7, None));
        assert!(owner.program.starts_with("\\u{1b}]0;x\\u{7}\u{fffd}xxx"), "{}", owner.program);
        assert!(owner.program.len() < 100 && !owner.program.contains('\u{1b}'));
        assert!(third.has_changed().is_err());
        let (four, fourth) = asked();
        let too_many = vec![v1::Owner { pid: 1, ..v1::Owner::default() }; 100];
        tell(vec![four], too_many);
        assert!(matches!(&*fourth.borrow(), Search::Found(owner) if owner.pid == 1));
    }
}
