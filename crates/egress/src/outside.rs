//! What the program around the doors provides: where records go, who is asked, where secrets come from, whose
//! connections are.

use async_trait::async_trait;
use belljar_policy::ProcessId;
use belljar_policy::document::{Source, Transport};
use std::net::{IpAddr, SocketAddr};
use tokio::sync::watch;

use crate::credentials::SecretValue;
use crate::{Identity, Record};

/// Takes every record.
pub trait Recorder: Send + Sync {
    /// Never blocks: it is called from the path of the bytes.
    fn record(&self, identity: &Identity, record: Record);
}

/// Which process in a sandbox held a connection when it was made. What is in it comes from inside, and is a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Owner {
    /// Inside the sandbox.
    pub pid: u32,
    /// The short name that the kernel has for it, which it chose itself.
    pub program: String,
    /// The process that the host started and that it belongs to.
    pub process: Option<ProcessId>,
}

/// The two ends of a connection as the sandbox sees them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ends {
    pub transport: Transport,
    pub local: SocketAddr,
    pub remote: SocketAddr,
}

/// How far a search for an owner has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Search {
    /// Nobody has begun to look.
    #[default]
    Waiting,
    /// Somebody looks, and will say soon what was found.
    Looking,
    Found(Owner),
}

/// Finds out whose connections are.
pub trait Owners: Send + Sync {
    /// Returns at once. Where the other end goes before anything was found, the owner is not known.
    fn search(&self, identity: &Identity, ends: Ends) -> Option<watch::Receiver<Search>>;
}

/// Knows nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoOwners;

impl Owners for NoOwners {
    fn search(&self, _: &Identity, _: Ends) -> Option<watch::Receiver<Search>> {
        None
    }
}

/// What somebody is asked to approve.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Asked {
    /// A verified name, or the text of an address.
    pub host: String,
    /// The one who is the first to ask.
    pub source: Option<SocketAddr>,
    pub address: Option<IpAddr>,
    pub port: u16,
    pub transport: Transport,
    /// Method and canonical path, where a request is asked about.
    pub request: Option<(String, String)>,
    /// The rule that says `ask`; none where nothing names the flow.
    pub rule: Option<String>,
    /// After this time the answer counts no more.
    pub wait: std::time::Duration,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Approval {
    /// This flow.
    Once,
    /// Every flow of this sandbox to that host, port and transport.
    Sandbox,
    /// The same, and the approver changes the policy for others.
    Always,
    Deny,
}

/// Answers for flows that must be approved.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Dropped when the time is over or the client is gone; either is a no.
    async fn ask(&self, identity: &Identity, asked: &Asked) -> Approval;
}

/// Gives the secrets that credentials name, already limited to what the sandbox's tenant owns.
#[async_trait]
pub trait Secrets: Send + Sync {
    /// # Errors
    /// Where there is none by that name, or its source fails.
    async fn get(&self, identity: &Identity, source: &Source) -> Result<SecretValue, SecretError>;
}

/// Why there is no secret. Never has the value in it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SecretError {
    #[error("no secret has this name")]
    NotFound,
    #[error("the secret's source failed: {0}")]
    Failed(String),
}

/// Says no to everything.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoApprover;

#[async_trait]
impl Approver for NoApprover {
    async fn ask(&self, _: &Identity, _: &Asked) -> Approval {
        Approval::Deny
    }
}

/// Has no secrets.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoSecrets;

#[async_trait]
impl Secrets for NoSecrets {
    async fn get(&self, _: &Identity, _: &Source) -> Result<SecretValue, SecretError> {
        Err(SecretError::NotFound)
    }
}
