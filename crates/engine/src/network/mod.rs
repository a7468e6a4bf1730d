//! The network of sandboxes: their gates are opened here, what comes of them is written down, and rules are changed.
//!
//! A sandbox with a network has doors that its backend gives out, and a gate of the egress crate behind them. One engine at a
//! time holds the gate of a sandbox; the kernel tells by a lock whether that engine is still alive. When it dies, the doors
//! close and nothing leaves the sandbox; the next engine that looks after it opens new ones with the same rules.

mod approvals;
pub(crate) mod authority;
mod change;
pub(crate) mod decider;
mod gates;
mod log;
mod owners;
mod record;
mod recorder;
mod settings;

pub use approvals::{ApprovalAnswer, PendingApproval};
pub use change::{NetworkChange, cidr as parse_cidr};
pub(crate) use change::{change, show};
pub(crate) use gates::Gates;
pub use log::{NetworkEntry, NetworkLog, NetworkQuery};
pub(crate) use record::NetworkRecord;
pub use settings::egress_settings;

use std::sync::Arc;
use std::time::Duration;

use belljar_egress::Callback;
use belljar_policy::NetworkMode;

use crate::engine::Inner;
use crate::store::{SandboxRecord, State};
use crate::{PolicyRef, Result, SandboxPolicy};

/// What a sandbox may reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    pub mode: String,
    pub allow: Vec<String>,
    pub deny: Vec<String>,
    pub cidrs: Vec<String>,
    /// How long what nothing names waits for somebody to allow it.
    pub ask: Option<Duration>,
    /// What a program that is connected decides about.
    pub callback: Callback,
    /// What enforces it.
    pub enforcement: String,
    /// Flows that are open now, where this engine holds the gate.
    pub open: Option<usize>,
}

/// The policy whose network rules hold for a sandbox.
pub(crate) async fn policy(
    inner: &Inner,
    sandbox: &SandboxRecord,
) -> Result<Option<Arc<SandboxPolicy>>> {
    let Some(kept) = &sandbox.details.policy else { return Ok(None) };
    let policy = inner.policies.find(inner, &PolicyRef::from(kept)).await?;
    Ok(Some(policy).filter(|policy| !policy.is_recording()))
}

/// The mode that a sandbox was made with, or has by now.
pub(crate) fn mode(record: &SandboxRecord) -> NetworkMode {
    record.details.network_mode.parse().unwrap_or_default()
}

impl Inner {
    /// Opens the gate of a sandbox that was found running, if nobody else has it.
    pub(crate) async fn open_gate(&self, found: &SandboxRecord) -> Result<()> {
        // It may have ended since it was found.
        match self.store.sandbox(&found.id).await? {
            Some(record) if matches!(record.state, State::Ready | State::Paused) => {
                self.gates.open(self, &record).await
            }
            _ => Ok(()),
        }
    }
}
