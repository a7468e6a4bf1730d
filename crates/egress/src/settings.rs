//! What holds for all sandboxes of a server.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::RootCertStore;

use crate::names::Resolver;
use crate::{Decider, Destinations, NoDecider, NoOwners, Owners, Redirected};

/// A server that is asked for names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upstream {
    /// UDP, and TCP where an answer is cut.
    Plain(SocketAddr),
    Tcp(SocketAddr),
    /// DNS over TLS; the certificate must be for this name.
    Tls(SocketAddr, String),
}

/// What holds for all sandboxes of a server.
#[derive(Clone)]
pub struct Settings {
    /// Asked in order until one answers. Empty: the servers of the host's `/etc/resolv.conf`.
    pub upstreams: Vec<Upstream>,
    /// Whom intercepted connections, and DNS over TLS, trust on the other side. None: the system's store.
    pub roots: Option<Arc<RootCertStore>>,
    /// How a connection's destination is found out.
    pub destinations: Arc<dyn Destinations>,
    /// Connections that one sandbox may have open.
    pub max_flows: usize,
    /// Questions per second that one sandbox may ask; twice as many in a burst.
    pub questions_per_second: u32,
    /// Asked where a sandbox's rules leave something to a program.
    pub decider: Arc<dyn Decider>,
    /// Asked whose connections are.
    pub owners: Arc<dyn Owners>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            upstreams: Vec::new(),
            roots: None,
            destinations: Arc::new(Redirected),
            max_flows: 4096,
            questions_per_second: 100,
            decider: Arc::new(NoDecider),
            owners: Arc::new(NoOwners),
        }
    }
}

impl Settings {
    pub(crate) fn resolver(&self) -> Resolver {
        Resolver::new(self.upstreams.clone(), self.roots.clone())
    }
}
