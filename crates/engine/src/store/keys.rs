//! API keys in the SQLite store. Secrets are not in it, only their hashes.

use belljar_policy::{SandboxId, TenantId};
use rusqlite::{OptionalExtension, Params, Row, params};

use super::SqliteStore;
use super::rows::{invalid, parsed, unknown};
use super::sqlite::{Change, Fault, failed, set_meta};
use crate::keys::{KeyInfo, KeyScope, MAX_KEYS, MAX_REMEMBERED_KEYS, NewKey, Role};
use crate::time::{from_ms, now_ms, to_ms};
use crate::{Error, Result};
use belljar_codes::Code;

const COLUMNS: &str =
    "SELECT id, name, tenant, role, sandbox, scopes, hash, created_at, expires_at, revoked_at,
     used_at FROM keys";

/// Stays when keys are forgotten: a server that had some does not become one that never had any.
const HAD_KEYS: &str = "had_keys";

/// A key with the hash of its secret.
#[derive(Clone, Debug)]
pub(crate) struct StoredKey {
    pub(crate) info: KeyInfo,
    pub(crate) hash: [u8; 32],
}

#[async_trait::async_trait]
pub(crate) trait KeyStore: Send + Sync {
    /// Refused where the tenant has too many. `own`: the secret was chosen by others, and does not begin with the id.
    async fn add_key(&self, id: &str, key: &NewKey, hash: &[u8; 32], own: bool) -> Result<KeyInfo>;

    /// Makes an existing key what it is described as.
    async fn change_key(&self, id: &str, key: &NewKey) -> Result<KeyInfo>;

    async fn key(&self, id: &str) -> Result<Option<StoredKey>>;

    async fn keys(&self) -> Result<Vec<KeyInfo>>;

    /// Whether some key opens something.
    async fn any_key_opens(&self) -> Result<bool>;

    /// Whether there has ever been a key, also one that was forgotten since.
    async fn had_keys(&self) -> Result<bool>;

    /// The key whose secret was chosen by others and has this hash.
    async fn own_key(&self, hash: &[u8; 32]) -> Result<Option<StoredKey>>;

    async fn revoke_key(&self, id: &str) -> Result<()>;

    async fn key_used(&self, id: &str) -> Result<()>;
}

#[async_trait::async_trait]
impl KeyStore for SqliteStore {
    async fn add_key(&self, id: &str, key: &NewKey, hash: &[u8; 32], own: bool) -> Result<KeyInfo> {
        let added = self.write(|change| {
            change.execute(
                "INSERT INTO keys (id, name, tenant, role, scopes, hash, own, created_at)
                 VALUES (?1, '', '', '', '', ?2, ?3, ?4)",
                params![id, hash, own, now_ms()],
            )?;
            set_meta(change, HAD_KEYS, "1")?;
            describe(change, id, key)?;
            check_room(change, key)
        });
        added?;
        self.described(id).await
    }

    async fn change_key(&self, id: &str, key: &NewKey) -> Result<KeyInfo> {
        self.write(|change| describe(change, id, key)).map_err(failed)?;
        self.described(id).await
    }

    async fn key(&self, id: &str) -> Result<Option<StoredKey>> {
        self.select_key(&format!("{COLUMNS} WHERE id = ?1"), params![id])
    }

    async fn keys(&self) -> Result<Vec<KeyInfo>> {
        let keys = self.select_keys(&format!("{COLUMNS} ORDER BY created_at, id"))?;
        Ok(keys.into_iter().map(|key| key.info).collect())
    }

    async fn any_key_opens(&self) -> Result<bool> {
        self.is_so(
            "SELECT EXISTS (SELECT 1 FROM keys
             WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?1))",
            params![now_ms()],
        )
    }

    async fn had_keys(&self) -> Result<bool> {
        self.is_so("SELECT EXISTS (SELECT 1 FROM meta WHERE key = ?1)", params![HAD_KEYS])
    }

    async fn own_key(&self, hash: &[u8; 32]) -> Result<Option<StoredKey>> {
        // How long it takes may tell how far a hash is right. Nobody chooses that: of a secret one only knows the whole hash.
        self.select_key(&format!("{COLUMNS} WHERE own AND hash = ?1"), params![hash])
    }

    async fn revoke_key(&self, id: &str) -> Result<()> {
        self.write(|change| {
            change.execute(
                "UPDATE keys SET revoked_at = ?2 WHERE id = ?1 AND revoked_at IS NULL",
                params![id, now_ms()],
            )
        })
        .map(drop)
        .map_err(failed)
    }

    async fn key_used(&self, id: &str) -> Result<()> {
        self.write(|change| {
            change.execute("UPDATE keys SET used_at = ?2 WHERE id = ?1", params![id, now_ms()])
        })
        .map(drop)
        .map_err(failed)
    }
}

impl SqliteStore {
    async fn described(&self, id: &str) -> Result<KeyInfo> {
        let key = self.key(id).await?;
        key.map(|key| key.info)
            .ok_or_else(|| Error::new(Code::KeyNotFound, format!("key `{id}` is gone again")))
    }

    fn select_key(&self, query: &str, params: impl Params) -> Result<Option<StoredKey>> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(query).map_err(failed)?;
        statement.query_row(params, key_from).optional().map_err(failed)
    }

    fn select_keys(&self, query: &str) -> Result<Vec<StoredKey>> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(query).map_err(failed)?;
        let rows = statement.query_map([], key_from).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }
}

/// Forgets keys that have opened nothing since the given time, or whose sandbox is forgotten.
pub(super) fn prune(change: &Change<'_>, before_ms: i64) -> rusqlite::Result<()> {
    change
        .prepare_cached(
            "DELETE FROM keys WHERE revoked_at < ?1 OR expires_at < ?1 OR sandbox IS NOT NULL
             AND NOT EXISTS (SELECT 1 FROM sandboxes AS s WHERE s.id = keys.sandbox)",
        )?
        .execute([before_ms])
        .map(drop)
}

/// Whoever administers has room, whatever the keys of its tenant do.
fn check_room(change: &Change<'_>, key: &NewKey) -> Result<(), Fault> {
    if key.role == Role::Admin {
        return Ok(());
    }
    let tenant = &key.tenant;
    let (open, all): (i64, i64) = change
        .prepare_cached(
            "SELECT count(*) FILTER (WHERE revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?2)),
             count(*) FROM keys WHERE tenant = ?1 AND role <> 'admin'",
        )?
        .query_row(params![tenant.as_str(), now_ms()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let (message, remedy) = if open.unsigned_abs() > MAX_KEYS {
        let message = format!("tenant `{tenant}` has {MAX_KEYS} keys already");
        (message, "revoke those that are not used")
    } else if all.unsigned_abs() > MAX_REMEMBERED_KEYS {
        let message =
            format!("{MAX_REMEMBERED_KEYS} keys of tenant `{tenant}` are remembered already");
        (message, "wait: revoked and expired ones are forgotten after some days")
    } else {
        return Ok(());
    };
    Err(Fault::Refused(Error::new(Code::QuotaExceeded, message).with_remedy(remedy)))
}

fn describe(change: &Change<'_>, id: &str, key: &NewKey) -> rusqlite::Result<()> {
    let sandbox = match &key.role {
        Role::Sandbox(id) => Some(id.as_str()),
        Role::Admin | Role::Tenant => None,
    };
    let scopes: Vec<_> = key.scopes.iter().map(|scope| scope.as_str()).collect();
    change
        .execute(
            "UPDATE keys SET name = ?2, tenant = ?3, role = ?4, sandbox = ?5, scopes = ?6, expires_at = ?7
             WHERE id = ?1",
            params![
                id,
                key.name,
                key.tenant.as_str(),
                key.role.as_str(),
                sandbox,
                scopes.join(" "),
                key.expires_at.map(to_ms),
            ],
        )
        .map(drop)
}

fn key_from(row: &Row<'_>) -> rusqlite::Result<StoredKey> {
    let (role, sandbox): (String, Option<String>) = (row.get(3)?, row.get(4)?);
    let role = match (role.as_str(), sandbox) {
        ("admin", None) => Role::Admin,
        ("tenant", None) => Role::Tenant,
        ("sandbox", Some(id)) => {
            Role::Sandbox(SandboxId::parse(&id).map_err(|error| invalid(4, error))?)
        }
        (other, _) => return Err(invalid(3, unknown(other))),
    };
    let scopes = parsed(row, 5, |text| {
        let words = text.split_ascii_whitespace();
        words.map(|word| KeyScope::parse(word).ok_or_else(|| unknown(word))).collect()
    })?;
    let time = |column| row.get::<_, Option<i64>>(column).map(|at| at.map(from_ms));
    let info = KeyInfo {
        id: row.get(0)?,
        name: row.get(1)?,
        tenant: parsed(row, 2, TenantId::parse)?,
        role,
        scopes,
        created_at: from_ms(row.get(7)?),
        expires_at: time(8)?,
        revoked_at: time(9)?,
        last_used_at: time(10)?,
    };
    Ok(StoredKey { info, hash: row.get(6)? })
}
