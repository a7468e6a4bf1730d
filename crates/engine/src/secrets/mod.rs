//! Secrets: what requests of sandboxes are given on the host, and sandboxes never see.
//!
//! Values go in and are not given out again by any interface; only what sends requests for a sandbox opens them, one
//! by one. At rest they are sealed with a key that is in a file of its own (see `vault`), so that a copy of the
//! database alone tells names and times. Not here: which request gets which secret (see `belljar-policy`), HTTP.

mod command;
mod source;
mod vault;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use belljar_codes::Code;
use belljar_policy::{SecretName, SecretValue, TenantId};

pub use source::SecretSources;
pub(crate) use vault::{Sealed, Vault};

use crate::engine::Inner;
use crate::{Engine, Error, Result, Scope, tenants};

/// How many a tenant may keep: enough for everybody, too few to fill a disk.
const MAX_SECRETS: usize = 1000;

/// What may be known of a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretInfo {
    pub name: SecretName,
    pub tenant: TenantId,
    pub created_at: SystemTime,
    pub changed_at: SystemTime,
}

/// The secrets of a tenant. An administrator names the tenant; everybody else has one.
#[derive(Clone)]
pub struct Secrets {
    inner: Arc<Inner>,
    scope: Scope,
}

impl Engine {
    /// What requests of sandboxes are given.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        Secrets { inner: Arc::clone(&self.inner), scope: self.scope.clone() }
    }
}

impl Secrets {
    /// Keeps a value under a name; an earlier value of that name is gone, for requests that begin from now on.
    pub async fn set(
        &self,
        tenant: Option<TenantId>,
        name: &SecretName,
        value: &SecretValue,
    ) -> Result<SecretInfo> {
        let tenant = self.tenant(tenant)?;
        if self.inner.store.tenant(&tenant).await?.is_none() {
            return Err(tenants::not_found(&tenant));
        }
        let kept = self.inner.store.secrets(Some(&tenant)).await?;
        if kept.len() >= MAX_SECRETS && !kept.iter().any(|kept| kept.name == *name) {
            return Err(Error::new(
                Code::QuotaExceeded,
                format!("tenant `{tenant}` keeps {MAX_SECRETS} secrets already"),
            )
            .with_remedy("remove those that are not used"));
        }
        let first = self.inner.store.nothing_sealed().await?;
        let sealed = self.inner.vault.seal(Sealed::Secret(&tenant, name), value, first)?;
        self.inner.store.set_secret(&tenant, name, &sealed).await
    }

    /// Names and times, by name.
    pub async fn list(&self) -> Result<Vec<SecretInfo>> {
        self.may_manage()?;
        let tenant = match &self.scope {
            Scope::All => None,
            scope => Some(scope.tenant()),
        };
        self.inner.store.secrets(tenant.as_ref()).await
    }

    pub async fn remove(&self, tenant: Option<TenantId>, name: &SecretName) -> Result<()> {
        let tenant = self.tenant(tenant)?;
        if self.inner.store.remove_secret(&tenant, name).await? {
            return Ok(());
        }
        Err(not_found(name))
    }

    fn tenant(&self, asked: Option<TenantId>) -> Result<TenantId> {
        self.may_manage()?;
        match (&self.scope, asked) {
            (scope, None) => Ok(scope.tenant()),
            (Scope::All, Some(tenant)) => Ok(tenant),
            (scope, Some(tenant)) if scope.tenant() == tenant => Ok(tenant),
            (_, Some(tenant)) => Err(tenants::not_found(&tenant)),
        }
    }

    fn may_manage(&self) -> Result<()> {
        match self.scope {
            Scope::All | Scope::Tenant(_) => Ok(()),
            Scope::Sandbox { .. } => {
                Err(Error::new(Code::PermissionDenied, "this caller may use one sandbox")
                    .with_remedy("use a key of the tenant"))
            }
        }
    }
}

pub(crate) fn not_found(name: &SecretName) -> Error {
    Error::new(Code::SecretNotFound, format!("there is no secret `{name}`"))
        .with_remedy("`belljar secrets list` shows those that there are")
}

/// Where the key is, unless somebody says otherwise.
pub(crate) fn default_key(root: &std::path::Path) -> PathBuf {
    root.join("secrets.key")
}
