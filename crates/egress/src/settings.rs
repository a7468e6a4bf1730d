//! What holds for all sandboxes of a server.

use std::net::SocketAddr;
use std::sync::Arc;

use rustls::RootCertStore;

use crate::names::Resolver;
use crate::{Destinations, Redirected};

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
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            upstreams: Vec::new(),
            roots: None,
            destinations: Arc::new(Redirected),
            max_flows: 4096,
            questions_per_second: 100,
        }
    }
}

/// Where DNS servers listen.
const DNS_PORT: u16 = 53;
/// As resolvers have it; more are not asked.
const MAX_HOST_UPSTREAMS: usize = 3;

impl Settings {
    pub(crate) fn resolver(&self) -> Resolver {
        let upstreams = if self.upstreams.is_empty() {
            let text = std::fs::read_to_string("/etc/resolv.conf").unwrap_or_default();
            host_upstreams(&text)
        } else {
            self.upstreams.clone()
        };
        Resolver::new(upstreams, self.roots.clone())
    }
}

/// The servers that a `resolv.conf` names.
fn host_upstreams(text: &str) -> Vec<Upstream> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("nameserver"), Some(address)) => {
                let address: std::net::IpAddr = address.parse().ok()?;
                Some(Upstream::Plain((address, DNS_PORT).into()))
            }
            _ => None,
        }
    };
    text.lines().filter_map(server).take(MAX_HOST_UPSTREAMS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_servers_are_read() {
        let text = "# a\nsearch x\nnameserver 192.0.2.1\nnameserver ::1 # b\nnameserver fe80::1%eth0\nnameserver x\n";
        let expected = [
            Upstream::Plain("192.0.2.1:53".parse().unwrap()),
            Upstream::Plain("[::1]:53".parse().unwrap()),
        ];
        assert_eq!(host_upstreams(text), expected);
    }
}
