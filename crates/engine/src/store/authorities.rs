//! Sealed keys of the certificate authorities of sandboxes in the SQLite store. They end with their sandboxes.

use belljar_policy::SandboxId;
use rusqlite::{OptionalExtension, params};

use super::SqliteStore;
use super::sqlite::failed;
use crate::Result;

/// An authority as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoredAuthority {
    pub(crate) certificate: String,
    pub(crate) sealed_key: Vec<u8>,
}

#[async_trait::async_trait]
pub(crate) trait AuthorityStore: Send + Sync {
    async fn set_authority(&self, sandbox: &SandboxId, authority: &StoredAuthority) -> Result<()>;

    async fn authority(&self, sandbox: &SandboxId) -> Result<Option<StoredAuthority>>;

    /// Whether there is nothing that the key of the secrets has sealed.
    async fn nothing_sealed(&self) -> Result<bool>;
}

#[async_trait::async_trait]
impl AuthorityStore for SqliteStore {
    async fn set_authority(&self, sandbox: &SandboxId, authority: &StoredAuthority) -> Result<()> {
        self.write(|change| {
            // Those of sandboxes that are gone go with the next that comes.
            change.execute(
                "DELETE FROM authorities WHERE sandbox NOT IN (SELECT id FROM sandboxes WHERE ended_at IS NULL)",
                [],
            )?;
            change.execute(
                "INSERT OR REPLACE INTO authorities (sandbox, certificate, sealed) VALUES (?1, ?2, ?3)",
                params![sandbox.as_str(), authority.certificate, authority.sealed_key],
            )
        })
        .map(drop)
        .map_err(failed)
    }

    async fn authority(&self, sandbox: &SandboxId) -> Result<Option<StoredAuthority>> {
        self.lock()
            .prepare_cached("SELECT certificate, sealed FROM authorities WHERE sandbox = ?1")
            .and_then(|mut statement| {
                statement
                    .query_row([sandbox.as_str()], |row| {
                        Ok(StoredAuthority { certificate: row.get(0)?, sealed_key: row.get(1)? })
                    })
                    .optional()
            })
            .map_err(failed)
    }

    async fn nothing_sealed(&self) -> Result<bool> {
        self.lock()
            .query_row(
                "SELECT NOT EXISTS (SELECT 1 FROM secrets) AND NOT EXISTS
                 (SELECT 1 FROM authorities JOIN sandboxes ON id = sandbox WHERE ended_at IS NULL)",
                [],
                |row| row.get(0),
            )
            .map_err(failed)
    }
}
