//! What is asked about a flow or request, and the answers.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use belljar_policy::document::Transport;

use super::live::Claim;
use super::permit::{Permit, Refusal};
use crate::{Asked, Greeting, Reason};

/// What is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Question<'a> {
    /// A verified name, or the text of an address where there is none.
    pub(crate) host: &'a str,
    pub(crate) address: Option<IpAddr>,
    pub(crate) port: u16,
    pub(crate) transport: Transport,
    /// Method and canonical path.
    pub(crate) request: Option<(&'a str, &'a str)>,
    /// Who asks.
    pub(crate) source: Option<SocketAddr>,
    pub(crate) greeting: Option<&'a Greeting>,
}

/// The answer.
#[derive(Debug)]
pub(crate) enum Answer {
    Allow(Permit),
    /// Only requests can tell, or requests on it may get a credential.
    Inspect(Permit),
    Deny(Refusal),
}

/// What an answer would be, without asking anybody and without counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Preview {
    Allow,
    Inspect { required: bool },
    Ask,
    Deny(Reason),
}

impl Question<'_> {
    /// The verified name, where there is one.
    pub(super) fn name(&self) -> Option<&str> {
        Some(self.host).filter(|host| host.parse::<IpAddr>().is_err())
    }

    pub(super) fn claim(&self, inspected: bool, approved: bool) -> Claim {
        Claim {
            host: self.host.to_owned(),
            address: self.address,
            port: self.port,
            transport: self.transport,
            request: self.owned_request(),
            inspected,
            approved,
        }
    }

    pub(super) fn asked(&self, rule: Option<String>, wait: Duration) -> Asked {
        Asked {
            host: self.host.to_owned(),
            source: self.source,
            address: self.address,
            port: self.port,
            transport: self.transport,
            request: self.owned_request(),
            rule,
            wait,
        }
    }

    fn owned_request(&self) -> Option<(String, String)> {
        self.request.map(|(method, path)| (method.to_owned(), path.to_owned()))
    }
}
