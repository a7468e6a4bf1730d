//! Policies in the SQLite store: documents by their digest, and names for some of them.

use belljar_policy::TenantId;
use belljar_policy::document::{Document, Layer};
use rusqlite::{OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::SqliteStore;
use super::rows::parsed;
use super::sqlite::{Change, failed, to_json};
use crate::policy::KeptPolicy;
use crate::time::{from_ms, now_ms};
use crate::{Error, Result};
use belljar_codes::Code;

/// How often it is noted that documents are still in use; much shorter than anything is kept.
const NOTE_EVERY_MS: i64 = 3_600_000;

/// The number of a version that was removed is not used again: its row stays, without a digest.
const COLUMNS: &str = "SELECT tenant, name, version, digest, created_at FROM policies";

#[async_trait::async_trait]
pub(crate) trait PolicyStore: Send + Sync {
    /// Whether these documents are kept, and are going to be for a while.
    async fn keeps_documents(&self, digest: &str) -> Result<bool>;

    /// Keeps documents for as long as something refers to them, and a while longer.
    async fn keep_documents(&self, digest: &str, layers: &str) -> Result<()>;

    async fn documents(&self, digest: &str) -> Result<Option<String>>;

    /// Adds a version, unless the newest has this digest.
    async fn put_policy(&self, tenant: &TenantId, name: &str, digest: &str) -> Result<KeptPolicy>;

    /// That version, or the newest.
    async fn kept_policy(
        &self,
        tenant: &TenantId,
        name: &str,
        version: Option<u32>,
    ) -> Result<Option<KeptPolicy>>;

    /// The newest of each name, or all versions of one name, the newest first.
    async fn kept_policies(&self, tenant: &TenantId, name: Option<&str>)
    -> Result<Vec<KeptPolicy>>;

    /// False where there was none.
    async fn remove_policy(
        &self,
        tenant: &TenantId,
        name: &str,
        version: Option<u32>,
    ) -> Result<bool>;
}

/// A document as it is kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct LayerRecord {
    origin: String,
    document: Document,
}

impl From<&Layer> for LayerRecord {
    fn from(layer: &Layer) -> Self {
        Self { origin: layer.origin.clone(), document: layer.document.clone() }
    }
}

impl From<LayerRecord> for Layer {
    fn from(record: LayerRecord) -> Self {
        Self { origin: record.origin, document: record.document }
    }
}

/// Documents as they are kept. Of large ones this takes a while.
pub(crate) fn written_layers(layers: &[Layer]) -> Result<String> {
    to_json(&layers.iter().map(LayerRecord::from).collect::<Vec<_>>())
}

/// The reverse of [`written_layers`].
pub(crate) fn read_layers(text: &str) -> Result<Vec<Layer>> {
    let records: Vec<LayerRecord> = serde_json::from_str(text).map_err(|source| {
        Error::new(Code::StateFailed, "read a policy that was kept").with_source(source)
    })?;
    Ok(records.into_iter().map(Layer::from).collect())
}

#[async_trait::async_trait]
impl PolicyStore for SqliteStore {
    async fn keeps_documents(&self, digest: &str) -> Result<bool> {
        let noted: Option<i64> = self
            .lock()
            .prepare_cached("SELECT noted_at FROM policy_documents WHERE digest = ?1")
            .and_then(|mut found| found.query_row([digest], |row| row.get(0)).optional())
            .map_err(failed)?;
        Ok(noted.is_some_and(|noted| (0..NOTE_EVERY_MS).contains(&(now_ms() - noted))))
    }

    async fn keep_documents(&self, digest: &str, layers: &str) -> Result<()> {
        self.write(|change| {
            change.execute(
                "INSERT INTO policy_documents (digest, layers, noted_at) VALUES (?1, ?2, ?3)
                 ON CONFLICT (digest) DO UPDATE SET noted_at = excluded.noted_at",
                params![digest, layers, now_ms()],
            )
        })
        .map(drop)
        .map_err(failed)
    }

    async fn documents(&self, digest: &str) -> Result<Option<String>> {
        self.lock()
            .prepare_cached("SELECT layers FROM policy_documents WHERE digest = ?1")
            .and_then(|mut found| found.query_row([digest], |row| row.get(0)).optional())
            .map_err(failed)
    }

    async fn put_policy(&self, tenant: &TenantId, name: &str, digest: &str) -> Result<KeptPolicy> {
        self.write(|change| {
            let newest: Option<(u32, Option<String>)> = change
                .prepare_cached(
                    "SELECT version, digest FROM policies WHERE tenant = ?1 AND name = ?2
                     ORDER BY version DESC LIMIT 1",
                )?
                .query_row(params![tenant.as_str(), name], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let version = match newest {
                Some((version, Some(known))) if known == digest => version,
                newest => {
                    let version = newest.map_or(1, |(version, _)| version.saturating_add(1));
                    change.execute(
                        "INSERT INTO policies (tenant, name, version, digest, created_at)
                         VALUES (?1, ?2, ?3, ?4, ?5)",
                        params![tenant.as_str(), name, version, digest, now_ms()],
                    )?;
                    version
                }
            };
            change
                .prepare_cached(&format!(
                    "{COLUMNS} WHERE tenant = ?1 AND name = ?2 AND version = ?3"
                ))?
                .query_row(params![tenant.as_str(), name, version], kept_from)
        })
        .map_err(failed)
    }

    async fn kept_policy(
        &self,
        tenant: &TenantId,
        name: &str,
        version: Option<u32>,
    ) -> Result<Option<KeptPolicy>> {
        let query = format!(
            "{COLUMNS} WHERE tenant = ?1 AND name = ?2 AND (?3 IS NULL OR version = ?3)
             AND digest IS NOT NULL ORDER BY version DESC LIMIT 1"
        );
        let connection = self.lock();
        let mut statement = connection.prepare_cached(&query).map_err(failed)?;
        let found = statement.query_row(params![tenant.as_str(), name, version], kept_from);
        found.optional().map_err(failed)
    }

    async fn kept_policies(
        &self,
        tenant: &TenantId,
        name: Option<&str>,
    ) -> Result<Vec<KeptPolicy>> {
        let query = match name {
            Some(_) => format!(
                "{COLUMNS} WHERE tenant = ?1 AND name = ?2 AND digest IS NOT NULL
                 ORDER BY version DESC"
            ),
            None => format!(
                "{COLUMNS} AS p WHERE tenant = ?1 AND ?2 IS NULL AND digest IS NOT NULL
                 AND version = (SELECT max(version) FROM policies
                                WHERE tenant = p.tenant AND name = p.name AND digest IS NOT NULL)
                 ORDER BY name"
            ),
        };
        let connection = self.lock();
        let mut statement = connection.prepare_cached(&query).map_err(failed)?;
        let rows = statement.query_map(params![tenant.as_str(), name], kept_from);
        rows.map_err(failed)?.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    async fn remove_policy(
        &self,
        tenant: &TenantId,
        name: &str,
        version: Option<u32>,
    ) -> Result<bool> {
        self.write(|change| {
            change.execute(
                "UPDATE policies SET digest = NULL WHERE tenant = ?1 AND name = ?2
                 AND (?3 IS NULL OR version = ?3) AND digest IS NOT NULL",
                params![tenant.as_str(), name, version],
            )
        })
        .map(|removed| removed > 0)
        .map_err(failed)
    }
}

/// Forgets documents that nothing refers to and that nobody has used since.
pub(super) fn prune(change: &Change<'_>, before_ms: i64) -> rusqlite::Result<()> {
    change
        .prepare_cached(
            "DELETE FROM policy_documents WHERE noted_at < ?1
             AND digest NOT IN (SELECT digest FROM policies WHERE digest IS NOT NULL)
             AND digest NOT IN (SELECT json_extract(details, '$.policy.digest') FROM sandboxes
                                WHERE json_extract(details, '$.policy.digest') IS NOT NULL)",
        )?
        .execute([before_ms])
        .map(drop)
}

fn kept_from(row: &Row<'_>) -> rusqlite::Result<KeptPolicy> {
    Ok(KeptPolicy {
        tenant: parsed(row, 0, TenantId::parse)?,
        name: row.get(1)?,
        version: row.get(2)?,
        digest: row.get(3)?,
        created_at: from_ms(row.get(4)?),
    })
}
