//! API keys: who a caller is, and what it may do.
//!
//! A key's secret is shown once, when it is made, and only its hash is kept. What a key may see becomes a [`Scope`]; what
//! it may do with that is for whoever takes requests to check.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use belljar_codes::Code;
use belljar_policy::{SandboxId, TenantId};

use crate::engine::Inner;
use crate::secret::{Secret, hash, same_hash};
use crate::store::StoredKey;
use crate::{Engine, Error, Result, Scope, random, tenants};

const PREFIX: &str = "bj";
const ID_LENGTH: usize = 10;

/// Secrets that others chose must not be guessable either.
const OWN_LENGTHS: std::ops::RangeInclusive<usize> = 16..=512;

const MAX_NAME: usize = 100;

/// Keys of one tenant that open something.
pub(crate) const MAX_KEYS: u64 = 10_000;

/// With those that were revoked or have expired and are still remembered.
pub(crate) const MAX_REMEMBERED_KEYS: u64 = 50_000;

/// Using a key is noted at most this often.
const NOTE_USE_EVERY: Duration = Duration::from_secs(60);

/// Whom a key stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// Sees and does everything.
    Admin,
    /// Sees and does everything of its tenant.
    Tenant,
    /// Sees and uses one sandbox.
    Sandbox(SandboxId),
}

/// A part of what a role may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum KeyScope {
    Read,
    Write,
    Exec,
    Files,
    Keys,
}

/// A key to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewKey {
    /// For people.
    pub name: String,
    pub tenant: TenantId,
    pub role: Role,
    /// Empty: all that the role may.
    pub scopes: Vec<KeyScope>,
    pub expires_at: Option<SystemTime>,
}

/// A key without its secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyInfo {
    pub id: String,
    pub name: String,
    pub tenant: TenantId,
    pub role: Role,
    /// Empty: all that the role may.
    pub scopes: Vec<KeyScope>,
    pub created_at: SystemTime,
    pub expires_at: Option<SystemTime>,
    pub revoked_at: Option<SystemTime>,
    /// To the minute.
    pub last_used_at: Option<SystemTime>,
}

/// The keys of a state directory that the scope lets see.
#[derive(Clone)]
pub struct Keys {
    inner: Arc<Inner>,
    scope: Scope,
}

impl Engine {
    /// What callers show to say who they are.
    #[must_use]
    pub fn keys(&self) -> Keys {
        Keys { inner: Arc::clone(&self.inner), scope: self.scope.clone() }
    }
}

impl Keys {
    /// Makes a key. Its secret is told here and never again.
    pub async fn create(&self, key: NewKey) -> Result<(KeyInfo, Secret)> {
        self.check(&key).await?;
        let id = random::token()[..ID_LENGTH].to_owned();
        let secret = Secret::new(format!("{PREFIX}_{id}_{}", Secret::random().expose()));
        let info = self.inner.store.add_key(&id, &key, &hash(secret.expose()), false).await?;
        Ok((info, secret))
    }

    /// Makes a key whose secret the caller chose. Added again, it becomes what it is added as.
    pub async fn add(&self, secret: &Secret, key: NewKey) -> Result<KeyInfo> {
        self.check(&key).await?;
        let text = secret.expose();
        if !OWN_LENGTHS.contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(Error::new(Code::InvalidArgument, "the secret of the key cannot be used")
                .with_remedy("use 16 to 512 visible ASCII characters that nobody guesses"));
        }
        let hash = hash(text);
        if let Some(known) = self.own(&hash).await? {
            if !self.sees(&known) || known.revoked_at.is_some() {
                return Err(Error::new(
                    Code::InvalidArgument,
                    "the secret of the key was used for another key before",
                )
                .with_remedy("choose a new secret"));
            }
            return self.inner.store.change_key(&known.id, &key).await;
        }
        let id = random::token()[..ID_LENGTH].to_owned();
        self.inner.store.add_key(&id, &key, &hash, true).await
    }

    /// All keys in scope, oldest first, also those that no longer open anything.
    pub async fn list(&self) -> Result<Vec<KeyInfo>> {
        self.may_manage()?;
        let keys = self.inner.store.keys().await?;
        Ok(keys.into_iter().filter(|key| self.sees(key)).collect())
    }

    /// Whether there is a key that opens something.
    pub async fn any(&self) -> Result<bool> {
        self.inner.store.any_key_opens().await
    }

    /// Whether there has ever been a key, also one that opens nothing any more.
    pub async fn ever(&self) -> Result<bool> {
        self.inner.store.had_keys().await
    }

    /// Whether the key of that id opens something.
    pub async fn opens(&self, id: &str) -> Result<bool> {
        Ok(self.inner.store.key(id).await?.is_some_and(|key| key.info.opens(SystemTime::now())))
    }

    /// From now on the key opens nothing. Revoking it again is fine.
    pub async fn revoke(&self, id: &str) -> Result<KeyInfo> {
        self.get(id).await?;
        self.inner.store.revoke_key(id).await?;
        self.get(id).await
    }

    async fn get(&self, id: &str) -> Result<KeyInfo> {
        self.may_manage()?;
        let found = self.inner.store.key(id).await?.filter(|key| self.sees(&key.info));
        found.map(|key| key.info).ok_or_else(|| {
            let shown = belljar_policy::shown(id);
            Error::new(Code::KeyNotFound, format!("there is no key `{shown}`"))
                .with_remedy("`belljar keys list` shows those that exist, with their ids")
        })
    }

    /// Whether the secret opens something. It is not used by that.
    pub async fn knows(&self, secret: &str) -> Result<bool> {
        Ok(self.find(secret).await?.is_some_and(|key| key.opens(SystemTime::now())))
    }

    /// The key of that secret; `None` if there is none, or it has expired or was revoked.
    pub async fn verify(&self, secret: &str) -> Result<Option<KeyInfo>> {
        let Some(key) = self.find(secret).await? else { return Ok(None) };
        let now = SystemTime::now();
        if !key.opens(now) {
            return Ok(None);
        }
        // A clock that was set back must not stop the noting for good.
        let noted = key.last_used_at.and_then(|at| now.duration_since(at).ok());
        if noted.is_none_or(|since| since >= NOTE_USE_EVERY)
            && let Err(error) = self.inner.store.key_used(&key.id).await
        {
            tracing::debug!(%error, key = key.id, "its use was not noted");
        }
        Ok(Some(key))
    }

    async fn find(&self, secret: &str) -> Result<Option<KeyInfo>> {
        let hash = hash(secret);
        if let Some(id) = id_of(secret)
            && let Some(StoredKey { info, hash: known }) = self.inner.store.key(id).await?
            && same_hash(&known, &hash)
        {
            return Ok(Some(info));
        }
        self.own(&hash).await
    }

    async fn own(&self, hash: &[u8; 32]) -> Result<Option<KeyInfo>> {
        let own = self.inner.store.own_key(hash).await?;
        Ok(own.filter(|key| same_hash(&key.hash, hash)).map(|key| key.info))
    }

    async fn check(&self, key: &NewKey) -> Result<()> {
        self.may_manage()?;
        if key.name.len() > MAX_NAME || key.name.chars().any(char::is_control) {
            let shown = belljar_policy::shown(&key.name);
            return Err(Error::new(
                Code::InvalidName,
                format!("key name `{shown}` is too long or contains a control character"),
            )
            .with_remedy(format!("use at most {MAX_NAME} characters")));
        }
        let mine = self.scope == Scope::All || self.scope.tenant() == key.tenant;
        if !mine || self.inner.store.tenant(&key.tenant).await?.is_none() {
            return Err(tenants::not_found(&key.tenant));
        }
        match &key.role {
            Role::Admin => self.scope.administers(),
            Role::Tenant => Ok(()),
            Role::Sandbox(id) => match self.inner.store.tenant_of(id).await? {
                Some(tenant) if tenant == key.tenant => Ok(()),
                _ => Err(Error::sandbox_not_found(id.as_str())),
            },
        }
    }

    fn may_manage(&self) -> Result<()> {
        match &self.scope {
            Scope::All | Scope::Tenant(_) => Ok(()),
            Scope::Sandbox { id, .. } => Err(Error::new(
                Code::PermissionDenied,
                format!("this caller may use sandbox `{id}` and no keys"),
            )
            .with_remedy("use a key of the tenant")),
        }
    }

    fn sees(&self, key: &KeyInfo) -> bool {
        match &self.scope {
            Scope::All => true,
            Scope::Tenant(tenant) => key.tenant == *tenant && key.role != Role::Admin,
            Scope::Sandbox { .. } => false,
        }
    }
}

impl KeyInfo {
    /// What a caller with this key sees.
    #[must_use]
    pub fn scope(&self) -> Scope {
        match &self.role {
            Role::Admin => Scope::All,
            Role::Tenant => Scope::Tenant(self.tenant.clone()),
            Role::Sandbox(id) => Scope::Sandbox { tenant: self.tenant.clone(), id: id.clone() },
        }
    }

    fn opens(&self, now: SystemTime) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| at > now)
    }

    /// Whether the key was made for this part of what its role may do.
    #[must_use]
    pub fn allows(&self, scope: KeyScope) -> bool {
        self.scopes.is_empty() || self.scopes.contains(&scope)
    }
}

impl Role {
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Tenant => "tenant",
            Self::Sandbox(_) => "sandbox",
        }
    }
}

impl KeyScope {
    pub const ALL: [Self; 5] = [Self::Read, Self::Write, Self::Exec, Self::Files, Self::Keys];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Exec => "exec",
            Self::Files => "files",
            Self::Keys => "keys",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|scope| scope.as_str() == text)
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("scope", &self.scope).finish_non_exhaustive()
    }
}

/// The id in a secret that we made.
fn id_of(secret: &str) -> Option<&str> {
    let (id, _) = secret.strip_prefix(PREFIX)?.strip_prefix('_')?.split_once('_')?;
    (id.len() == ID_LENGTH).then_some(id)
}
