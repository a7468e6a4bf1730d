//! The gates that this engine holds.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_codes::Code;
use belljar_egress::{Doors, Egress, Gate, Identity, Settings};
use belljar_policy::SandboxId;

use super::approvals::Approvals;
use super::decider::Deciding;
use super::owners::OwnerSearch;
use super::recorder::Writer;
use super::{authority, mode, policy, record};
use crate::engine::Inner;
use crate::lock::FileLock;
use crate::secrets::SecretSources;
use crate::state_dir::StateDirectory;
use crate::store::SandboxRecord;
use crate::{AuditLog, Error, NetworkLog, NetworkQuery, Result};

/// All gates of one engine.
pub(crate) struct Gates {
    egress: Egress,
    open: Mutex<HashMap<SandboxId, Held>>,
    /// One at a time makes doors: two that make those of the same sandbox would close each other's.
    opening: tokio::sync::Mutex<()>,
    /// And one changes rules.
    changing: tokio::sync::Mutex<()>,
    writer: Arc<Writer>,
    pub(crate) approvals: Approvals,
    pub(crate) owners: OwnerSearch,
}

/// A gate and the right to it.
struct Held {
    gate: Gate,
    lock: FileLock,
}

impl Gates {
    pub(crate) fn new(
        settings: Settings,
        audit: AuditLog,
        secrets: SecretSources,
        deciding: Deciding,
        directory: &StateDirectory,
    ) -> Self {
        let approvals = Approvals::new(Arc::new(deciding.clone()), audit.clone());
        let owners = OwnerSearch::default();
        let settings =
            Settings { decider: Arc::new(deciding), owners: Arc::new(owners.clone()), ..settings };
        let writer = Arc::new(Writer::new(audit, directory.network()));
        let recorder = Arc::clone(&writer);
        let egress =
            Egress::new(settings, recorder, Arc::new(approvals.clone()), Arc::new(secrets));
        Self {
            egress,
            open: Mutex::default(),
            opening: tokio::sync::Mutex::default(),
            changing: tokio::sync::Mutex::default(),
            writer,
            approvals,
            owners,
        }
    }

    /// Opens the gate of a running sandbox unless it has none, or some engine holds it already.
    pub(crate) async fn open(&self, inner: &Inner, sandbox: &SandboxRecord) -> Result<()> {
        let id = &sandbox.id;
        if !sandbox.details.network.doors || self.holds(id) {
            return Ok(());
        }
        let _turn = self.opening.lock().await;
        if self.holds(id) {
            return Ok(());
        }
        let path = inner.directory.gate_lock(id);
        let acquired = FileLock::try_acquire(&path).map_err(|e| Error::state("lock", &path, e))?;
        let Some(lock) = acquired else { return Ok(()) };
        let policy = policy(inner, sandbox).await?;
        let document = policy.as_ref().map(|policy| &policy.document);
        let rules = sandbox.details.network.rules(mode(sandbox), document)?;
        let authority = authority::find(inner, id).await?;
        let ports = record::udp_ports(&sandbox.details.network, document);
        let backend = inner.backends.get(&sandbox.backend)?;
        let Some(doors) = backend.doors(id, &ports).await? else { return Ok(()) };
        let belljar_backend::Doors { tcp, dns_udp, dns_tcp, udp, proxy } = doors;
        let doors = Doors { tcp, dns_udp, dns_tcp, udp, proxy };
        let identity = Identity { sandbox: id.clone(), tenant: sandbox.tenant.clone() };
        let gate = self.egress.open(identity, doors, rules, authority).map_err(|source| {
            Error::new(Code::StartFailed, "the doors of the sandbox cannot be served")
                .with_source(source)
        })?;
        self.held().insert(id.clone(), Held { gate, lock });
        Ok(())
    }

    /// Whether requests of a sandbox that is about to start are looked into, so that it must trust an authority.
    pub(crate) async fn inspects(&self, inner: &Inner, sandbox: &SandboxRecord) -> Result<bool> {
        if !sandbox.details.network.doors {
            return Ok(false);
        }
        let policy = policy(inner, sandbox).await?;
        let document = policy.as_ref().map(|policy| &policy.document);
        Ok(sandbox.details.network.rules(mode(sandbox), document)?.inspects())
    }

    /// Closes the gate of a sandbox; nothing leaves it from here on.
    pub(crate) fn close(&self, id: &SandboxId) {
        let held = self.held().remove(id);
        self.writer.forget(id);
        self.owners.forget(id);
        if let Some(Held { gate, lock }) = held {
            gate.close();
            if let Err(error) = lock.remove() {
                tracing::debug!(%error, sandbox = %id, "a lock file was left behind");
            }
        }
    }

    /// Closes all gates.
    pub(crate) fn close_all(&self) {
        let all: Vec<_> = self.held().keys().cloned().collect();
        for id in all {
            self.close(&id);
        }
    }

    /// For whoever reads rules in order to change them.
    pub(crate) async fn changing(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.changing.lock().await
    }

    pub(crate) fn read_log(&self, id: &SandboxId, query: NetworkQuery) -> NetworkLog {
        self.writer.logs.read(id, query, self.with(id, Gate::late))
    }

    /// Removes the logs that nothing was added to for so long.
    pub(crate) fn prune_logs(&self, kept: Duration) {
        self.writer.logs.prune(kept);
    }

    /// How often flows were allowed, and flows, names and requests denied.
    pub(crate) fn decisions(&self) -> [u64; 4] {
        self.writer.counts()
    }

    pub(crate) fn holds(&self, id: &SandboxId) -> bool {
        self.held().contains_key(id)
    }

    /// Does something with the gate of a sandbox, if it is held here.
    pub(crate) fn with<T>(&self, id: &SandboxId, act: impl FnOnce(&Gate) -> T) -> Option<T> {
        self.held().get(id).map(|held| act(&held.gate))
    }

    fn held(&self) -> MutexGuard<'_, HashMap<SandboxId, Held>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
