//! Idempotency keys in the SQLite store.
//!
//! A key is taken in the transaction that records what it stands for, so there is never a key without its sandbox or
//! process. It is known for a day, within its tenant and operation.

use belljar_codes::Code;
use belljar_policy::TenantId;
use rusqlite::{Connection, OptionalExtension, params};

use super::SqliteStore;
use super::sqlite::{Change, Fault};
use crate::time::now_ms;
use crate::{Error, Result};

/// How long a key is known.
const KNOWN_MS: i64 = 24 * 3600 * 1000;

const MAX_KEY: usize = 255;

/// What a key is for; the same key may be used for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Exec,
}

/// A key with the fingerprint of the request that it came with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct KeyClaim {
    operation: Operation,
    key: String,
    hash: String,
}

/// What came of claiming a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Claimed {
    /// It was free, or none was given.
    New,
    /// The same request came before, and this is the id of what it made.
    Known(String),
}

impl KeyClaim {
    /// The key has been [checked](Self::check).
    pub(crate) fn new(operation: Operation, key: &str, hash: String) -> Self {
        Self { operation, key: key.to_owned(), hash }
    }

    /// Whether callers may use such a key. What is claimed may be longer: it says whose the key is, before a space.
    pub(crate) fn check(key: &str) -> Result<()> {
        if key.is_empty() || key.len() > MAX_KEY || !key.bytes().all(|b| b.is_ascii_graphic()) {
            let shown = belljar_policy::shown(key);
            return Err(Error::new(
                Code::InvalidArgument,
                format!("`{shown}` is not an idempotency key"),
            )
            .with_remedy(format!("use 1 to {MAX_KEY} visible ASCII characters")));
        }
        Ok(())
    }
}

impl Operation {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Exec => "exec",
        }
    }
}

#[async_trait::async_trait]
pub(crate) trait IdempotencyStore: Send + Sync {
    /// What was made with the key; `IdempotencyConflict` if that was for another request.
    async fn known_key(&self, tenant: &TenantId, claim: &KeyClaim) -> Result<Option<String>>;
}

#[async_trait::async_trait]
impl IdempotencyStore for SqliteStore {
    async fn known_key(&self, tenant: &TenantId, claim: &KeyClaim) -> Result<Option<String>> {
        Ok(look(&self.lock(), tenant, claim)?)
    }
}

/// Takes the key for `resource`, unless it is known.
pub(super) fn claim(
    change: &Change<'_>,
    tenant: &TenantId,
    claim: Option<&KeyClaim>,
    resource: &str,
) -> Result<Claimed, Fault> {
    let Some(claim) = claim else { return Ok(Claimed::New) };
    if let Some(known) = look(change, tenant, claim)? {
        return Ok(Claimed::Known(known));
    }
    change
        .prepare_cached(
            "INSERT OR REPLACE INTO idempotency (tenant, operation, key, hash, resource, at)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
        )?
        .execute(params![
            tenant.as_str(),
            claim.operation.as_str(),
            claim.key,
            claim.hash,
            resource,
            now_ms()
        ])?;
    Ok(Claimed::New)
}

/// Gives back the key of what was never made, so that the request can be tried again.
pub(super) fn give_back(change: &Change<'_>, resource: &str) -> rusqlite::Result<()> {
    change
        .prepare_cached("DELETE FROM idempotency WHERE resource = ?1")?
        .execute([resource])
        .map(drop)
}

pub(super) fn prune(change: &Change<'_>) -> rusqlite::Result<()> {
    change
        .prepare_cached("DELETE FROM idempotency WHERE at < ?1")?
        .execute([now_ms() - KNOWN_MS])
        .map(drop)
}

fn look(
    connection: &Connection,
    tenant: &TenantId,
    claim: &KeyClaim,
) -> Result<Option<String>, Fault> {
    let known: Option<(String, String)> = connection
        .prepare_cached(
            "SELECT hash, resource FROM idempotency
             WHERE tenant = ?1 AND operation = ?2 AND key = ?3 AND at >= ?4",
        )?
        .query_row(
            params![tenant.as_str(), claim.operation.as_str(), claim.key, now_ms() - KNOWN_MS],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .optional()?;
    match known {
        None => Ok(None),
        Some((hash, resource)) if hash == claim.hash => Ok(Some(resource)),
        Some(_) => {
            // Whoever it belongs to has not written whose it is.
            let key = claim.key.rsplit(' ').next().unwrap_or_default();
            Err(Fault::Refused(
                Error::new(
                    Code::IdempotencyConflict,
                    format!("idempotency key `{key}` was used for another request"),
                )
                .with_remedy("use a new key for each request, and the same one to repeat it"),
            ))
        }
    }
}
