//! Opening and closing: one [`Egress`] per server, one [`Gate`] per sandbox.

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::doors::token::{Access, Registry};
use crate::doors::{proxy, tcp, udp};
use crate::flow::{Judge, Parts, Room};
use crate::names::{self, Resolver};
use crate::{Approver, Authority, Doors, Identity, ProxyKey, Recorder, Rules, Secrets, Settings};

/// What all gates of a server share.
pub struct Egress {
    settings: Arc<Settings>,
    resolver: Arc<Resolver>,
    recorder: Arc<dyn Recorder>,
    approver: Arc<dyn Approver>,
    secrets: Arc<dyn Secrets>,
    room: Arc<Room>,
    gates: Arc<Registry>,
}

/// A proxy for sandboxes to which no link leads. Dropping it closes it, and what goes through it.
pub struct SharedProxy {
    _closed: DropGuard,
}

/// The open doors of one sandbox. Dropping it closes them and cuts every flow.
pub struct Gate {
    judge: Arc<Judge>,
    gates: Arc<Registry>,
}

/// What a gate is doing and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flows and requests that are open now.
    pub open: usize,
    /// Records with that verdict so far.
    pub allowed: u64,
    pub denied: u64,
    /// Of flows that are over.
    pub bytes_up: u64,
    pub bytes_down: u64,
}

impl Egress {
    #[must_use]
    pub fn new(
        settings: Settings,
        recorder: Arc<dyn Recorder>,
        approver: Arc<dyn Approver>,
        secrets: Arc<dyn Secrets>,
    ) -> Self {
        let resolver = Arc::new(settings.resolver());
        Self {
            settings: Arc::new(settings),
            resolver,
            recorder,
            approver,
            secrets,
            room: Room::of_process(),
            gates: Arc::default(),
        }
    }

    /// Serves a sandbox's doors until the gate is closed. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Where a socket cannot be served; none is then.
    pub fn open(
        &self,
        identity: Identity,
        doors: Doors,
        rules: Rules,
        authority: Option<Authority>,
    ) -> io::Result<Gate> {
        let judge = Arc::new(Judge::new(Parts {
            identity,
            rules,
            recorder: Arc::clone(&self.recorder),
            approver: Arc::clone(&self.approver),
            secrets: Arc::clone(&self.secrets),
            resolver: Arc::clone(&self.resolver),
            authority,
            settings: Arc::clone(&self.settings),
            room: Arc::clone(&self.room),
        }));
        // Made first: whatever fails below closes what is already served.
        let gate = Gate { judge: Arc::clone(&judge), gates: Arc::clone(&self.gates) };
        let flows = Arc::new(Semaphore::new(self.settings.max_flows));
        for listener in doors.tcp {
            gate.serve(tcp::serve(Arc::clone(&judge), listening(listener)?, Arc::clone(&flows)));
        }
        for listener in doors.proxy {
            gate.serve(proxy::serve(Arc::clone(&judge), listening(listener)?, Arc::clone(&flows)));
        }
        for socket in doors.dns_udp {
            gate.serve(names::serve_udp(Arc::clone(&judge), bound(socket)?));
        }
        for listener in doors.dns_tcp {
            gate.serve(names::serve_tcp(Arc::clone(&judge), listening(listener)?));
        }
        for (port, socket) in doors.udp {
            gate.serve(udp::serve(Arc::clone(&judge), port, bound(socket)?));
        }
        self.gates.add(&judge);
        Ok(gate)
    }

    /// Serves a proxy to which sandboxes say by a token who they are: for backends that cannot lead a link to doors. Only
    /// sandboxes with an open gate (it may be one without doors) are served. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// Where the socket cannot be served.
    pub fn serve_proxy(
        &self,
        listener: std::net::TcpListener,
        key: ProxyKey,
    ) -> io::Result<SharedProxy> {
        let access = Access::Shared { key, gates: Arc::clone(&self.gates) };
        let closed = CancellationToken::new();
        let until = closed.clone();
        let (listener, room) = (listening(listener)?, Arc::clone(&self.room));
        let serving = proxy::serve_shared(access, listener, room, closed.clone());
        tokio::spawn(async move { until.run_until_cancelled(serving).await });
        Ok(SharedProxy { _closed: closed.drop_guard() })
    }
}

impl Gate {
    #[must_use]
    pub fn identity(&self) -> &Identity {
        self.judge.identity()
    }

    /// New rules. Flows that they no longer allow are cut at once.
    pub fn set_rules(&self, rules: Rules) {
        self.judge.set_rules(rules);
    }

    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        self.judge.rules()
    }

    /// How many records of flows that are over have not been written yet.
    #[must_use]
    pub fn late(&self) -> watch::Receiver<usize> {
        self.judge.late()
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        let tally = self.judge.tally();
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        Counts {
            open: self.judge.live().count(),
            allowed: read(&tally.allowed),
            denied: read(&tally.denied),
            bytes_up: read(&tally.bytes_up),
            bytes_down: read(&tally.bytes_down),
        }
    }

    /// Closes the doors and cuts every flow.
    pub fn close(self) {}

    fn serve(&self, door: impl Future<Output = ()> + Send + 'static) {
        let closed = self.judge.live().closed().clone();
        tokio::spawn(async move { closed.run_until_cancelled(door).await });
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.judge.live().closed().cancel();
        self.gates.remove(&self.judge);
    }
}

fn listening(listener: std::net::TcpListener) -> io::Result<TcpListener> {
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

fn bound(socket: std::net::UdpSocket) -> io::Result<UdpSocket> {
    socket.set_nonblocking(true)?;
    UdpSocket::from_std(socket)
}
