//! Who asks, and what they may do.

use std::time::SystemTime;

use belljar_api::v1;
use belljar_codes::Code;
use belljar_engine::Scope;
use belljar_policy::{SandboxId, TenantId};

use crate::own_keys::Fingerprint;
use crate::problem::{Problem, Result};
use crate::token::{self, Maker};

/// What a request does, as far as a key's scopes tell requests apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permission {
    /// Looking at sandboxes, processes and their output.
    Read,
    /// Making, changing and ending sandboxes.
    Write,
    /// Running commands and acting on them.
    Exec,
    /// Files inside sandboxes.
    Files,
    /// API keys of one's own tenant.
    Keys,
    /// Tenants, the server itself.
    Admin,
}

impl Permission {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Exec => "exec",
            Self::Files => "files",
            Self::Keys => "keys",
            Self::Admin => "admin",
        }
    }
}

/// How the identity was established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proof {
    /// Peer credentials of the Unix socket.
    Socket,
    /// A loopback connection of the server's own user, on a server without keys.
    Loopback,
    Key,
    Token,
    /// The same process.
    Embedded,
}

impl Proof {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Socket => "socket",
            Self::Loopback => "loopback",
            Self::Key => "key",
            Self::Token => "token",
            Self::Embedded => "embedded",
        }
    }
}

/// An identity that was established.
#[derive(Clone, Debug)]
pub struct Caller {
    pub scope: Scope,
    /// For the audit log: `uid:0`, `key:ab12…`, `token:…`.
    pub actor: String,
    /// The key that was shown, or that made the token.
    pub key: Option<String>,
    /// The key that was shown, where it is one of the operator's own.
    pub(crate) own_key: Option<Fingerprint>,
    /// When the key or token that was shown ends.
    pub expires_at: Option<SystemTime>,
    /// Empty: all that the scope may.
    pub permissions: Vec<String>,
    pub proof: Proof,
}

impl Caller {
    /// The operator of this machine.
    pub fn operator(actor: impl Into<String>, proof: Proof) -> Self {
        Self {
            scope: Scope::All,
            actor: actor.into(),
            key: None,
            own_key: None,
            expires_at: None,
            permissions: Vec::new(),
            proof,
        }
    }

    /// Somebody who may see what a sandbox shows, and nothing else.
    pub(crate) fn visitor(tenant: &TenantId, id: &SandboxId, by: &str) -> Self {
        Self {
            scope: Scope::Sandbox { tenant: tenant.clone(), id: id.clone() },
            actor: format!("visitor:{by}"),
            key: None,
            own_key: None,
            expires_at: None,
            permissions: vec![Permission::Exec.as_str().to_owned()],
            proof: Proof::Token,
        }
    }

    /// What ends the tokens that this caller makes.
    pub(crate) fn maker(&self) -> Option<Maker<'_>> {
        let key = self.key.as_deref().map(Maker::Key);
        key.or_else(|| self.own_key.as_ref().map(Maker::Own))
    }

    pub fn is_admin(&self) -> bool {
        matches!(self.scope, Scope::All)
    }

    pub fn tenant(&self) -> TenantId {
        self.scope.tenant()
    }

    pub fn role(&self) -> &'static str {
        match self.scope {
            Scope::All => "admin",
            Scope::Tenant(_) => "tenant",
            Scope::Sandbox { .. } => "sandbox",
        }
    }

    /// Refuses what the caller's role or key does not include.
    pub fn check(&self, permission: Permission) -> Result<()> {
        let word = permission.as_str();
        if permission == Permission::Admin && !self.is_admin() {
            return Err(self.denied("this needs the role `admin`"));
        }
        if !self.permissions.is_empty() && !self.permissions.iter().any(|allowed| allowed == word) {
            return Err(self.denied(&format!("this needs the scope `{word}`")));
        }
        Ok(())
    }

    /// The tenant that an administrator named, or the caller's own. Others cannot name any but their own.
    pub fn scope_for(&self, tenant: Option<&str>) -> Result<Scope> {
        let Some(tenant) = tenant else { return Ok(self.scope.clone()) };
        let tenant = TenantId::parse(tenant)?;
        match &self.scope {
            Scope::All => Ok(Scope::Tenant(tenant)),
            scope if scope.tenant() == tenant => Ok(scope.clone()),
            // Whether it exists is not theirs to know.
            _ => Err(Problem::new(Code::TenantNotFound, format!("there is no tenant `{tenant}`"))
                .with_remedy(format!(
                    "an administrator can create it with `belljar tenants create {tenant}`"
                ))),
        }
    }

    pub fn wire(&self) -> v1::Caller {
        let sandbox_id = match &self.scope {
            Scope::Sandbox { id, .. } => Some(id.as_str().to_owned()),
            _ => None,
        };
        v1::Caller {
            role: self.role().to_owned(),
            tenant: self.tenant().to_string(),
            sandbox_id,
            key_id: self.key.clone().filter(|key| !token::is_own(key)),
            scopes: self.permissions.clone(),
            by: self.proof.as_str().to_owned(),
        }
    }

    fn denied(&self, message: &str) -> Problem {
        Problem::new(Code::PermissionDenied, message.to_owned())
            .with_remedy("use a key that includes it")
    }
}
