//! Tenants: who shares a state directory without seeing each other, and how much each may use.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::SystemTime;

use belljar_codes::Code;
use belljar_policy::TenantId;

use crate::engine::Inner;
use crate::recovery::remove_log;
use crate::{Error, Result, SandboxState, Scope};
use crate::{snapshot, volume};

/// How much a tenant may use at the same time; `None` means as much as there is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quotas {
    /// Sandboxes that have not ended.
    pub sandboxes: Option<u64>,
    /// The sum of what its sandboxes may use, likewise the next two.
    pub memory_bytes: Option<u64>,
    pub milli_cpus: Option<u64>,
    pub disk_bytes: Option<u64>,
    /// Processes that run.
    pub processes: Option<u64>,
    /// For whoever takes requests to keep; the engine only remembers it.
    pub requests_per_second: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenant {
    pub id: TenantId,
    pub created_at: SystemTime,
    pub quotas: Quotas,
}

/// What a tenant uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TenantUsage {
    pub sandboxes: u64,
    pub memory_bytes: u64,
    pub milli_cpus: u64,
    pub disk_bytes: u64,
    pub processes: u64,
}

/// What there is now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sandboxes that have not ended, by state.
    pub sandboxes: BTreeMap<SandboxState, u64>,
    /// Processes that have not ended.
    pub processes: u64,
}

/// The tenants of a state directory. `default` is always there.
#[derive(Clone)]
pub struct Tenants {
    inner: Arc<Inner>,
    scope: Scope,
}

impl Tenants {
    pub(crate) fn new(inner: &Arc<Inner>, scope: Scope) -> Self {
        Self { inner: Arc::clone(inner), scope }
    }

    pub async fn create(&self, id: TenantId, quotas: Quotas) -> Result<Tenant> {
        self.scope.administers()?;
        self.inner.store.add_tenant(&id, &quotas).await
    }

    pub async fn get(&self, id: &TenantId) -> Result<Tenant> {
        self.sees(id)?;
        self.inner.store.tenant(id).await?.ok_or_else(|| not_found(id))
    }

    /// All of them, by name.
    pub async fn list(&self) -> Result<Vec<Tenant>> {
        self.scope.administers()?;
        self.inner.store.tenants().await
    }

    /// Replaces all quotas. What is in use already stays, even if it is more.
    pub async fn set(&self, id: &TenantId, quotas: Quotas) -> Result<Tenant> {
        self.scope.administers()?;
        if !self.inner.store.set_quotas(id, &quotas).await? {
            return Err(not_found(id));
        }
        self.get(id).await
    }

    /// Removes a tenant that has no sandboxes any more, with its keys, webhooks, secrets, volumes, snapshots and
    /// all that was remembered of it.
    pub async fn remove(&self, id: &TenantId) -> Result<()> {
        self.scope.administers()?;
        if *id == TenantId::default() {
            return Err(Error::new(
                Code::InvalidArgument,
                format!("tenant `{id}` cannot be removed"),
            ));
        }
        for process in self.inner.store.remove_tenant(id).await? {
            remove_log(&self.inner, &process);
        }
        volume::remove_all(&self.inner, id)?;
        snapshot::remove_all(&self.inner, id).await
    }

    pub async fn usage(&self, id: &TenantId) -> Result<TenantUsage> {
        self.get(id).await?;
        self.inner.store.usage(id).await
    }

    fn sees(&self, id: &TenantId) -> Result<()> {
        match &self.scope {
            Scope::All => Ok(()),
            Scope::Tenant(mine) | Scope::Sandbox { tenant: mine, .. } if mine == id => {
                self.scope.sees_tenant()
            }
            Scope::Tenant(_) | Scope::Sandbox { .. } => Err(not_found(id)),
        }
    }
}

impl std::fmt::Debug for Tenants {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenants").field("scope", &self.scope).finish_non_exhaustive()
    }
}

pub(crate) fn not_found(id: &TenantId) -> Error {
    Error::new(Code::TenantNotFound, format!("there is no tenant `{id}`"))
        .with_remedy(format!("an administrator can create it with `belljar tenants create {id}`"))
}
