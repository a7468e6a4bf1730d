//! A record in the making.

use std::net::IpAddr;
use std::time::{Instant, SystemTime};

use belljar_policy::document::Transport;

use crate::{Reason, Record, Stage};

/// What is known about a flow so far.
#[derive(Debug)]
pub(crate) struct Draft {
    at: SystemTime,
    begin: Instant,
    pub(crate) transport: Transport,
    pub(crate) host: Option<String>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) sni: Option<String>,
    pub(crate) rule: Option<String>,
}

impl Draft {
    pub(crate) fn new(transport: Transport, address: Option<IpAddr>, port: u16) -> Self {
        Self {
            at: SystemTime::now(),
            begin: Instant::now(),
            transport,
            host: None,
            address,
            port,
            sni: None,
            rule: None,
        }
    }

    pub(crate) fn finish(self, reason: Reason, bytes_up: u64, bytes_down: u64) -> Record {
        Record {
            at: self.at,
            stage: Stage::Flow,
            transport: self.transport,
            host: self.host,
            address: self.address,
            port: self.port,
            sni: self.sni,
            method: None,
            path: None,
            rule: self.rule,
            verdict: reason.verdict(),
            reason,
            bytes_up,
            bytes_down,
            duration: self.begin.elapsed(),
            owner: None,
        }
    }
}
