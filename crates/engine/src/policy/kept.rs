//! Policies that are kept by name, each change a new version.

use std::sync::Arc;
use std::time::SystemTime;

use belljar_policy::TenantId;

use super::choice::{not_found, written_layers};
use super::{PolicyName, PolicyRef, SandboxPolicy};
use crate::engine::Inner;
use crate::store::Documents;
use crate::{Result, Scope};

/// One version of a kept policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPolicy {
    pub tenant: TenantId,
    pub name: String,
    /// From 1 on; a number is never used again, also not after the policy was removed.
    pub version: u32,
    pub digest: String,
    pub created_at: SystemTime,
}

/// The policies of the scope's tenant.
#[derive(Clone)]
pub struct Policies {
    inner: Arc<Inner>,
    scope: Scope,
}

impl Policies {
    pub(crate) fn new(inner: &Arc<Inner>, scope: Scope) -> Self {
        Self { inner: Arc::clone(inner), scope }
    }

    /// Keeps a new version. One that says the same as the newest is not kept twice: the newest is returned.
    pub async fn put(&self, name: &PolicyName, policy: &Arc<SandboxPolicy>) -> Result<KeptPolicy> {
        self.scope.may_create()?;
        let tenant = self.scope.tenant();
        let layers = &written_layers(policy).await?;
        let documents = Documents { digest: &policy.digest, layers };
        self.inner.store.put_policy(&tenant, &name.name, documents).await
    }

    /// One version with its documents.
    pub async fn get(&self, name: &PolicyName) -> Result<(KeptPolicy, Arc<SandboxPolicy>)> {
        self.scope.sees_tenant()?;
        let tenant = self.scope.tenant();
        let kept = self.inner.store.kept_policy(&tenant, &name.name, name.version).await?;
        let kept = kept.ok_or_else(|| not_found(name))?;
        let reference = PolicyRef {
            name: kept.name.clone(),
            version: Some(kept.version),
            digest: kept.digest.clone(),
            recording: false,
        };
        let policy = self.inner.policies.find(&self.inner, &reference).await?;
        Ok((kept, policy))
    }

    /// The newest version of each policy by name, or every version of one, the newest first.
    pub async fn list(&self, name: Option<&str>) -> Result<Vec<KeptPolicy>> {
        self.scope.sees_tenant()?;
        self.inner.store.kept_policies(&self.scope.tenant(), name).await
    }

    /// Removes a version, or all of them. Sandboxes that run under one go on.
    pub async fn remove(&self, name: &PolicyName) -> Result<()> {
        self.scope.may_create()?;
        let tenant = self.scope.tenant();
        match self.inner.store.remove_policy(&tenant, &name.name, name.version).await? {
            true => Ok(()),
            false => Err(not_found(name)),
        }
    }
}

impl std::fmt::Debug for Policies {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Policies").field("scope", &self.scope).finish_non_exhaustive()
    }
}
