//! What the engine remembers: sandboxes, their journal, processes.
//!
//! [`Store`] and the traits it is made of are the few questions and statements the engine needs, so that another database
//! can stand behind it; every method is one transaction. Records are private: nothing outside the engine sees how state is kept.
//!
//! A transition writes its journal entry and the new state together, before the act. Not here: deciding what a record
//! that an interrupted process left means (see `recovery`).

mod authorities;
mod events;
mod idempotency;
mod keys;
mod listing;
mod policies;
mod ports;
mod processes;
mod record;
mod rows;
mod sandboxes;
mod schema;
mod secrets;
mod sqlite;
mod tenants;
mod webhooks;

use belljar_policy::ProcessId;

pub(crate) use authorities::{AuthorityStore, StoredAuthority};
pub(crate) use events::EventStore;
pub(crate) use idempotency::{Claimed, IdempotencyStore, KeyClaim, Operation};
pub(crate) use keys::{KeyStore, StoredKey};
pub(crate) use listing::Listing;
pub(crate) use policies::{Documents, LayerRecord, PolicyStore, read_layers, written_layers};
pub(crate) use ports::PortStore;
pub(crate) use processes::{Ended, ProcessStore};
pub(crate) use record::{
    Details, EnforcementRecord, ExitRecord, Owner, PolicyRecord, ProcessDetails, ProcessRecord,
    ProcessStatus, SandboxRecord, State, WorkspaceRecord,
};
pub(crate) use sandboxes::{Reserved, SandboxStore, check_usable};
pub(crate) use secrets::SecretStore;
pub(crate) use sqlite::SqliteStore;
pub(crate) use tenants::TenantStore;
pub(crate) use webhooks::WebhookStore;

use crate::Result;

/// A step of a sandbox's life, written to the journal before it happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Reserved,
    Starting,
    Configuring,
    Ready,
    Ensuring,
    Applying,
    Resetting,
    Pausing,
    Resuming,
    Stopping,
    Removing,
}

impl Step {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Starting => "starting",
            Self::Configuring => "configuring",
            Self::Ready => "ready",
            Self::Ensuring => "ensuring",
            Self::Applying => "applying",
            Self::Resetting => "resetting",
            Self::Pausing => "pausing",
            Self::Resuming => "resuming",
            Self::Stopping => "stopping",
            Self::Removing => "removing",
        }
    }
}

/// Which sandboxes to look for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Which {
    /// Creating, ready, paused or destroying.
    Live,
    /// A transition that began and has not ended: creating or destroying.
    Unfinished,
    /// Live ones that end with the engine that made them.
    Ephemeral,
}

/// How a sandbox's life ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was destroyed, or went by itself for the given reason.
    Destroyed(Option<String>),
    /// It never became ready.
    Failed(String),
}

#[async_trait::async_trait]
pub(crate) trait Store:
    SandboxStore
    + ProcessStore
    + EventStore
    + IdempotencyStore
    + TenantStore
    + KeyStore
    + WebhookStore
    + PolicyStore
    + SecretStore
    + PortStore
    + AuthorityStore
{
    /// The four characters that every id made with this store begins with.
    fn node(&self) -> &str;

    /// Forgets ended sandboxes, processes and events whose time has passed; returns the processes, whose logs may go.
    async fn prune(&self, ended_before_ms: i64) -> Result<Vec<ProcessId>>;

    /// True at most once per `interval_ms` over all processes that share the store.
    async fn claim_turn(&self, job: &str, interval_ms: i64) -> Result<bool>;

    /// Writes to the disk what has been committed so far.
    async fn write_log(&self);

    /// Does what keeps the store small and fast; called when nobody waits.
    async fn maintain(&self) -> Result<()>;
}
