//! Policies in the SQLite store: documents by their digest, and names for some of them.

use belljar_policy::TenantId;
use belljar_policy::document::{Document, Layer};
use belljar_policy::limits::format_bytes;
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::SqliteStore;
use super::rows::parsed;
use super::sqlite::{Change, Fault, failed, to_json};
use crate::policy::KeptPolicy;
use crate::time::{from_ms, now_ms};
use crate::{Error, Result};
use belljar_codes::Code;

/// How often it is noted that documents are still in use; much shorter than anything is kept.
const NOTE_EVERY_MS: i64 = 3_600_000;

/// Versions of policies that are kept for one tenant, of all names together.
const MAX_VERSIONS: u64 = 1000;

/// With what their documents may take together, each counted once.
const ROOM: Room = Room { versions: MAX_VERSIONS, bytes: 256 << 20 };

/// Names of one tenant whose last version was removed, and of which that is remembered by name.
const MAX_REMOVED: i64 = 1000;

/// Under this name, which no policy has, is the highest of the numbers that are remembered without their names.
const FORGOTTEN: &str = "";

/// The number of a version that was removed is not used again: the row of the highest stays, without a digest.
const COLUMNS: &str = "SELECT tenant, name, version, digest, created_at FROM policies";

#[async_trait::async_trait]
pub(crate) trait PolicyStore: Send + Sync {
    /// Whether these documents are kept, and are going to be for a while.
    async fn keeps_documents(&self, digest: &str) -> Result<bool>;

    /// Keeps documents for as long as something refers to them, and a while longer.
    async fn keep_documents(&self, digest: &str, layers: &str) -> Result<()>;

    async fn documents(&self, digest: &str) -> Result<Option<String>>;

    /// Whether the tenant may put this, whose documents take so many bytes, unless it has them already.
    async fn check_policy_room(
        &self,
        tenant: &TenantId,
        name: &str,
        digest: &str,
        bytes: u64,
    ) -> Result<()>;

    /// Adds a version, unless the newest has this digest, or there are too many.
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

/// How much policies take.
#[derive(Clone, Copy)]
struct Room {
    versions: u64,
    bytes: u64,
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

    async fn check_policy_room(
        &self,
        tenant: &TenantId,
        name: &str,
        digest: &str,
        bytes: u64,
    ) -> Result<()> {
        let connection = self.lock();
        let (is_newest, has_it): (bool, bool) = connection
            .prepare_cached(
                "SELECT coalesce((SELECT digest FROM policies WHERE tenant = ?1 AND name = ?2
                                  ORDER BY version DESC LIMIT 1) = ?3, FALSE),
                 EXISTS (SELECT 1 FROM policies WHERE tenant = ?1 AND digest = ?3)",
            )
            .and_then(|mut found| {
                let values = params![tenant.as_str(), name, digest];
                found.query_row(values, |row| Ok((row.get(0)?, row.get(1)?)))
            })
            .map_err(failed)?;
        if is_newest {
            return Ok(());
        }
        let bytes = if has_it { 0 } else { bytes };
        Ok(check_room(&connection, tenant, Room { versions: 1, bytes }, ROOM)?)
    }

    async fn put_policy(&self, tenant: &TenantId, name: &str, digest: &str) -> Result<KeptPolicy> {
        let put = self.write(|change| {
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
                    let newest = newest.map_or(0, |(version, _)| version);
                    let version = newest.max(forgotten(change, tenant)?).saturating_add(1);
                    change.execute(
                        "INSERT INTO policies (tenant, name, version, digest, created_at)
                         VALUES (?1, ?2, ?3, ?4, ?5)",
                        params![tenant.as_str(), name, version, digest, now_ms()],
                    )?;
                    check_room(change, tenant, Room { versions: 0, bytes: 0 }, ROOM)?;
                    version
                }
            };
            let mut found = change.prepare_cached(&format!(
                "{COLUMNS} WHERE tenant = ?1 AND name = ?2 AND version = ?3"
            ))?;
            Ok::<_, Fault>(found.query_row(params![tenant.as_str(), name, version], kept_from)?)
        });
        Ok(put?)
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
            let removed = change.execute(
                "UPDATE policies SET digest = NULL WHERE tenant = ?1 AND name = ?2
                 AND (?3 IS NULL OR version = ?3) AND digest IS NOT NULL",
                params![tenant.as_str(), name, version],
            )?;
            // The highest number tells that of the next, so that of the others nothing is to be remembered.
            change.execute(
                "DELETE FROM policies WHERE tenant = ?1 AND name = ?2 AND digest IS NULL AND version <
                 (SELECT max(version) FROM policies WHERE tenant = ?1 AND name = ?2)",
                params![tenant.as_str(), name],
            )?;
            forget_names(change, tenant)?;
            Ok(removed > 0)
        })
        .map_err(failed)
    }
}

/// Refuses what a tenant may not have, with so much more than there is.
fn check_room(
    connection: &Connection,
    tenant: &TenantId,
    more: Room,
    most: Room,
) -> Result<(), Fault> {
    let (versions, bytes): (i64, i64) = connection
        .prepare_cached(
            "SELECT (SELECT count(*) FROM policies WHERE tenant = ?1 AND digest IS NOT NULL),
             (SELECT coalesce(sum(octet_length(layers)), 0) FROM policy_documents
              WHERE digest IN (SELECT digest FROM policies WHERE tenant = ?1))",
        )?
        .query_row([tenant.as_str()], |row| Ok((row.get(0)?, row.get(1)?)))?;
    let refused = if versions.unsigned_abs() + more.versions > most.versions {
        format!("tenant `{tenant}` keeps {} versions of policies already", most.versions)
    } else if bytes.unsigned_abs().saturating_add(more.bytes) > most.bytes {
        let most = format_bytes(most.bytes);
        format!("the policies of tenant `{tenant}` would take more than {most} together")
    } else {
        return Ok(());
    };
    Err(Fault::Refused(
        Error::new(Code::QuotaExceeded, refused)
            .with_remedy("remove old versions, as `belljar policy rm NAME@1` does"),
    ))
}

/// The highest number among those that are remembered without their names.
fn forgotten(change: &Change<'_>, tenant: &TenantId) -> rusqlite::Result<u32> {
    change
        .prepare_cached(
            "SELECT coalesce(max(version), 0) FROM policies WHERE tenant = ?1 AND name = ?2",
        )?
        .query_row([tenant.as_str(), FORGOTTEN], |row| row.get(0))
}

/// Beyond a bound, of the names that were removed first only the highest number is remembered: new ones go on from there, so
/// that no number of any of them comes again.
fn forget_names(change: &Change<'_>, tenant: &TenantId) -> rusqlite::Result<()> {
    const REMOVED: &str = "SELECT name FROM policies WHERE tenant = ?1 AND digest IS NULL
        AND name != ?2 ORDER BY created_at DESC, name LIMIT -1 OFFSET ?3";
    let values = params![tenant.as_str(), FORGOTTEN, MAX_REMOVED];
    let highest: Option<u32> = change
        .prepare_cached(&format!(
            "SELECT max(version) FROM policies WHERE tenant = ?1 AND digest IS NULL
             AND name IN ({REMOVED})"
        ))?
        .query_row(values, |row| row.get(0))?;
    let Some(highest) = highest else { return Ok(()) };
    let highest = highest.max(forgotten(change, tenant)?);
    change.execute(
        &format!(
            "DELETE FROM policies WHERE tenant = ?1 AND digest IS NULL AND (name = ?2 OR name IN ({REMOVED}))"
        ),
        values,
    )?;
    change.execute(
        "INSERT INTO policies (tenant, name, version, digest, created_at) VALUES (?1, ?2, ?3, NULL, ?4)",
        params![tenant.as_str(), FORGOTTEN, highest, now_ms()],
    )?;
    Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;

    fn store() -> (tempfile::TempDir, SqliteStore) {
        let directory = tempfile::tempdir().unwrap();
        let store = SqliteStore::open(&directory.path().join("belljar.db")).unwrap();
        (directory, store)
    }

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    fn rows(store: &SqliteStore) -> i64 {
        let count = "SELECT count(*) FROM policies";
        store.lock().query_row(count, [], |row| row.get(0)).unwrap()
    }

    #[tokio::test]
    async fn a_tenant_keeps_a_bounded_number_of_versions() {
        let (_directory, store) = store();
        let (one, two) = (tenant("one"), tenant("two"));
        for number in 1..=MAX_VERSIONS {
            let kept = store.put_policy(&one, "web", &format!("digest {number}")).await.unwrap();
            assert_eq!(u64::from(kept.version), number);
        }
        let refused = store.put_policy(&one, "api", "another").await.unwrap_err();
        assert_eq!(refused.code(), Code::QuotaExceeded);
        assert_eq!(store.kept_policy(&one, "api", None).await.unwrap(), None);
        // What is kept already is no new version, and another tenant has its own room.
        store.put_policy(&one, "web", &format!("digest {MAX_VERSIONS}")).await.unwrap();
        store.put_policy(&two, "api", "another").await.unwrap();
        assert!(store.remove_policy(&one, "web", Some(7)).await.unwrap());
        store.put_policy(&one, "api", "another").await.unwrap();
    }

    #[tokio::test]
    async fn what_policies_take_is_counted_once_for_each_document() {
        let (_directory, store) = store();
        let one = tenant("one");
        for (name, digest) in [("a", "x"), ("b", "x"), ("c", "y")] {
            store.keep_documents(digest, &"ü".repeat(50)).await.unwrap();
            store.put_policy(&one, name, digest).await.unwrap();
        }
        let room = |versions, bytes| {
            let (more, most) = (Room { versions: 0, bytes: 0 }, Room { versions, bytes });
            let checked = check_room(&store.lock(), &one, more, most);
            checked.map_err(|fault| Error::from(fault).to_string())
        };
        assert_eq!(room(3, 200), Ok(()));
        assert!(room(3, 199).unwrap_err().contains("more than 199"));
        assert!(room(2, 200).unwrap_err().contains("2 versions"));
        store.check_policy_room(&one, "other", "other", ROOM.bytes - 200).await.unwrap();
        let refused =
            store.check_policy_room(&one, "other", "other", ROOM.bytes - 199).await.unwrap_err();
        assert_eq!(refused.code(), Code::QuotaExceeded);
    }

    #[tokio::test]
    async fn numbers_do_not_come_again_though_little_of_them_is_remembered() {
        let (_directory, store) = store();
        let (one, two) = (tenant("one"), tenant("two"));
        for digest in ["a", "b", "c"] {
            store.put_policy(&one, "web", digest).await.unwrap();
        }
        store.remove_policy(&one, "web", None).await.unwrap();
        assert_eq!(rows(&store), 1);
        store.put_policy(&one, "old", "a").await.unwrap();
        store.put_policy(&two, "old", "a").await.unwrap();
        assert_eq!(store.put_policy(&one, "web", "a").await.unwrap().version, 4);
        store.remove_policy(&one, "web", None).await.unwrap();
        for number in 0..MAX_REMOVED + 10 {
            let name = format!("n{number}");
            store.put_policy(&one, &name, "a").await.unwrap();
            assert!(store.remove_policy(&one, &name, None).await.unwrap());
        }
        // Two policies, the removed ones, and what is remembered of the others.
        assert_eq!(rows(&store), 2 + MAX_REMOVED + 1);
        assert!(store.put_policy(&one, "web", "a").await.unwrap().version > 4);
        assert!(store.put_policy(&one, "n0", "a").await.unwrap().version > 1);
        assert_eq!(store.put_policy(&two, "web", "a").await.unwrap().version, 1);
        let listed = store.kept_policies(&one, None).await.unwrap();
        let names: Vec<_> = listed.iter().map(|kept| kept.name.as_str()).collect();
        assert_eq!(names, ["n0", "old", "web"]);
        assert_eq!(store.kept_policy(&one, "old", None).await.unwrap().unwrap().version, 1);
    }
}
