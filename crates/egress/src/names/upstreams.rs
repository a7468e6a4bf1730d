//! Which servers are asked: those that were configured, or the host's own.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::Upstream;

const HOST_FILE: &str = "/etc/resolv.conf";
/// The host's servers change when it moves to another network.
const READ_AGAIN: Duration = Duration::from_secs(10);
/// Where DNS servers listen.
const PORT: u16 = 53;
/// As other resolvers have it; more are not asked.
const MAX_HOST_SERVERS: usize = 3;

pub(super) enum Upstreams {
    Configured(Arc<[Upstream]>),
    /// As read at that time.
    Host(Mutex<Option<(Instant, Arc<[Upstream]>)>>),
}

impl Upstreams {
    pub(super) fn new(configured: Vec<Upstream>) -> Self {
        if configured.is_empty() {
            Self::Host(Mutex::default())
        } else {
            Self::Configured(configured.into())
        }
    }

    pub(super) fn get(&self) -> Arc<[Upstream]> {
        match self {
            Self::Configured(upstreams) => Arc::clone(upstreams),
            Self::Host(read) => {
                let mut read = read.lock().unwrap_or_else(PoisonError::into_inner);
                match &*read {
                    Some((at, upstreams)) if at.elapsed() < READ_AGAIN => Arc::clone(upstreams),
                    _ => {
                        let text = std::fs::read_to_string(HOST_FILE).unwrap_or_default();
                        let upstreams: Arc<[Upstream]> = host_servers(&text).into();
                        *read = Some((Instant::now(), Arc::clone(&upstreams)));
                        upstreams
                    }
                }
            }
        }
    }
}

/// The servers that a `resolv.conf` names.
fn host_servers(text: &str) -> Vec<Upstream> {
    let server = |line: &str| {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("nameserver"), Some(address)) => {
                let address: std::net::IpAddr = address.parse().ok()?;
                Some(Upstream::Plain((address, PORT).into()))
            }
            _ => None,
        }
    };
    text.lines().filter_map(server).take(MAX_HOST_SERVERS).collect()
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
        assert_eq!(host_servers(text), expected);
    }
}
