//! Programs that decide: about connections that no rule names, and about requests before they leave.
//!
//! Which sandboxes have one is in their [`Rules`](crate::Rules) and does not change: nobody there, no answer in time, or
//! a failure is a no, never a way around the program.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use belljar_policy::SecretValue;
use belljar_policy::document::Transport;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{Identity, SecretError};

/// A program that has said nothing for this long has said no.
pub const DECISION_TIME: Duration = Duration::from_secs(10);

/// What of a sandbox a program decides about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Callback {
    /// Names and connections that no rule names.
    pub connections: bool,
    /// Every request: what rules allow must be HTTP, and each request must be let go on.
    pub requests: bool,
}

/// What a sandbox says in TLS; a claim.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Greeting {
    pub sni: Option<String>,
    pub alpn: Vec<String>,
}

/// A connection, or a question for a name, before anything of it has left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connecting {
    pub transport: Transport,
    pub source: Option<SocketAddr>,
    /// None where the sandbox only named a host to the proxy door.
    pub address: Option<IpAddr>,
    pub port: u16,
    /// The name for which our DNS gave the sandbox this address.
    pub host: Option<String>,
    /// Name and type, where it is a question for a name.
    pub question: Option<(String, String)>,
    pub greeting: Option<Greeting>,
    /// The rule that leaves it to the program, where one does.
    pub rule: Option<String>,
}

/// What a program says about a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    Allow {
        /// Only HTTP, and each request is shown to the program.
        http: bool,
        /// For all connections to this host, port and transport, as long as the gate is open.
        lasting: bool,
        /// The server that is asked, for a question.
        resolver: Option<SocketAddr>,
        words: String,
    },
    Deny {
        words: String,
    },
    /// There is no answer; why.
    Unanswered(String),
}

/// A request that is allowed and not yet sent. Secrets are not in it.
#[derive(Debug)]
pub struct HandledRequest<'a> {
    pub host: &'a str,
    pub port: u16,
    pub secure: bool,
    /// The sandbox speaks HTTP/2.
    pub http2: bool,
    pub method: &'a str,
    pub path: &'a str,
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
    pub source: Option<SocketAddr>,
    /// Where the sandbox connected to.
    pub address: Option<IpAddr>,
    pub greeting: Option<&'a Greeting>,
}

/// What becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handled {
    /// It goes on, with these headers set and those taken away. What frames messages cannot be changed.
    Send {
        set: Vec<(HeaderName, HeaderValue)>,
        remove: Vec<HeaderName>,
    },
    Deny {
        words: String,
    },
    /// There is no answer; why.
    Unanswered(String),
}

/// Decides for sandboxes whose rules say so.
#[async_trait]
pub trait Decider: Send + Sync {
    /// Whether somebody is there who decides about connections of this sandbox.
    fn is_there(&self, identity: &Identity) -> bool;

    /// Dropped when the time is over or the client is gone; either is a no.
    async fn connection(&self, identity: &Identity, asked: &Connecting, wait: Duration)
    -> Decision;

    async fn request(&self, identity: &Identity, request: HandledRequest<'_>) -> Handled;

    /// A secret that a credential of the sandbox gets from the program.
    ///
    /// # Errors
    /// Where nobody gives it.
    async fn secret(&self, identity: &Identity, name: &str) -> Result<SecretValue, SecretError>;
}

/// Nobody is there.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoDecider;

#[async_trait]
impl Decider for NoDecider {
    fn is_there(&self, _: &Identity) -> bool {
        false
    }

    async fn connection(&self, _: &Identity, _: &Connecting, _: Duration) -> Decision {
        Decision::Unanswered("nobody decides here".to_owned())
    }

    async fn request(&self, _: &Identity, _: HandledRequest<'_>) -> Handled {
        Handled::Unanswered("nobody decides here".to_owned())
    }

    async fn secret(&self, _: &Identity, _: &str) -> Result<SecretValue, SecretError> {
        Err(SecretError::NotFound)
    }
}

/// How a record calls what a program decided: with the words that it gave, if any.
pub(crate) fn label(words: &str) -> String {
    match words {
        "" => "callback".to_owned(),
        words => format!("callback: {}", belljar_policy::shown(words)),
    }
}
