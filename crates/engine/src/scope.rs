//! What a caller may see.
//!
//! A scope is decided once, where the caller is known, and every question to the engine is asked through it. What lies
//! outside does not exist for the caller: the answer is that of something that never was, not a refusal.

use belljar_codes::Code;
use belljar_policy::{SandboxId, TenantId};

use crate::{Error, Result};

/// What a caller may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Everything; what it makes belongs to the tenant `default`.
    All,
    /// What belongs to one tenant.
    Tenant(TenantId),
    /// One sandbox.
    Sandbox { tenant: TenantId, id: SandboxId },
}

impl Scope {
    /// Whose new sandboxes are, and where names are looked up.
    #[must_use]
    pub fn tenant(&self) -> TenantId {
        match self {
            Self::All => TenantId::default(),
            Self::Tenant(tenant) | Self::Sandbox { tenant, .. } => tenant.clone(),
        }
    }

    /// Whether a sandbox, or something that belongs to it, can be seen.
    pub(crate) fn sees(&self, tenant: &TenantId, sandbox: &SandboxId) -> bool {
        match self {
            Self::All => true,
            Self::Tenant(mine) => mine == tenant,
            Self::Sandbox { tenant: mine, id } => mine == tenant && id == sandbox,
        }
    }

    /// Refuses a caller that does not see everything.
    pub(crate) fn administers(&self) -> Result<()> {
        match self {
            Self::All => Ok(()),
            Self::Tenant(_) | Self::Sandbox { .. } => Err(Error::new(
                Code::PermissionDenied,
                "this is for administrators of the whole state directory",
            )
            .with_remedy("use a key with the role `admin`")),
        }
    }

    /// Refuses a caller that was given one sandbox and asks about its tenant.
    pub(crate) fn sees_tenant(&self) -> Result<()> {
        match self {
            Self::All | Self::Tenant(_) => Ok(()),
            Self::Sandbox { id, .. } => Err(Error::new(
                Code::PermissionDenied,
                format!("this caller may use sandbox `{id}` and sees nothing else of its tenant"),
            )
            .with_remedy("use a key of the tenant")),
        }
    }

    /// Refuses a caller that was given one sandbox and wants another.
    pub(crate) fn may_create(&self) -> Result<()> {
        match self {
            Self::All | Self::Tenant(_) => Ok(()),
            Self::Sandbox { id, .. } => Err(Error::new(
                Code::PermissionDenied,
                format!("this caller may use sandbox `{id}` and make no others"),
            )
            .with_remedy("use a key of the tenant")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_ends_where_it_says() {
        let tenant = |name| TenantId::parse(name).unwrap();
        let id = |text| SandboxId::parse(text).unwrap();
        let (mine, other) = (tenant("mine"), tenant("other"));
        let (one, two) = (id("n001aaaa"), id("n001bbbb"));
        let check = |scope: &Scope, tenant, sandbox, seen| {
            assert_eq!(scope.sees(tenant, sandbox), seen, "{scope:?} {tenant} {sandbox}");
        };
        check(&Scope::All, &other, &two, true);
        let scope = Scope::Tenant(mine.clone());
        check(&scope, &mine, &two, true);
        check(&scope, &other, &two, false);
        assert!(scope.may_create().is_ok());
        let scope = Scope::Sandbox { tenant: mine.clone(), id: one.clone() };
        check(&scope, &mine, &one, true);
        check(&scope, &mine, &two, false);
        check(&scope, &other, &one, false);
        assert_eq!(scope.may_create().unwrap_err().code(), Code::PermissionDenied);
        assert_eq!((Scope::All.tenant(), scope.tenant()), (TenantId::default(), mine));
    }
}
