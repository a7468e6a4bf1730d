//! Policies in the SQLite store: documents by their digest, and names for some of them.

use belljar_policy::TenantId;
use belljar_policy::document::{Document, Layer};
use belljar_policy::limits::format_bytes;
use rusqlite::{OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use super::SqliteStore;
use super::rows::parsed;
use super::sqlite::{Change, Fault, failed, to_json};
use crate::policy::KeptPolicy;
use crate::time::{from_ms, now_ms};
use crate::{Error, Result};
use belljar_codes::Code;

/// Versions of policies that are kept for one tenant, of all names together.
const MAX_VERSIONS: u64 = 1000;

/// What documents may take together that one tenant brought: those of its policies, and of its sandboxes as long as they are
/// remembered.
const ROOM: Room = Room { versions: MAX_VERSIONS, bytes: 256 << 20 };

/// Documents that give way in one step, so that of large ones no more go than have to.
const FORGOTTEN_AT_ONCE: i64 = 16;

/// Nothing that is kept refers to a document. Whatever refers to one is written with it, or finds it, in one transaction.
const IS_UNUSED: &str =
    "NOT EXISTS (SELECT 1 FROM policies AS p WHERE p.digest = policy_documents.digest)
    AND NOT EXISTS (SELECT 1 FROM sandboxes AS s WHERE s.policy = policy_documents.digest)";

/// Names of one tenant whose last version was removed, and of which that is remembered by name.
const MAX_REMOVED: i64 = 1000;

/// Under this name, which no policy has, is the highest of the numbers that are remembered without their names.
const FORGOTTEN: &str = "";

/// The number of a version that was removed is not used again: the row of the highest stays, without a digest.
const COLUMNS: &str = "SELECT tenant, name, version, digest, created_at FROM policies";

#[async_trait::async_trait]
pub(crate) trait PolicyStore: Send + Sync {
    /// Documents that a policy or a sandbox refers to.
    async fn documents(&self, digest: &str) -> Result<Option<String>>;

    /// Adds a version of these documents, unless the newest has them, or there are too many.
    async fn put_policy(
        &self,
        tenant: &TenantId,
        name: &str,
        documents: Documents<'_>,
    ) -> Result<KeptPolicy>;

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

/// Documents as they are kept, and their digest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Documents<'d> {
    pub(crate) digest: &'d str,
    pub(crate) layers: &'d str,
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
    async fn documents(&self, digest: &str) -> Result<Option<String>> {
        self.lock()
            .prepare_cached("SELECT layers FROM policy_documents WHERE digest = ?1")
            .and_then(|mut found| found.query_row([digest], |row| row.get(0)).optional())
            .map_err(failed)
    }

    async fn put_policy(
        &self,
        tenant: &TenantId,
        name: &str,
        documents: Documents<'_>,
    ) -> Result<KeptPolicy> {
        let put = self.write(|change| {
            let newest: Option<(u32, Option<String>)> = change
                .prepare_cached(
                    "SELECT version, digest FROM policies WHERE tenant = ?1 AND name = ?2
                     ORDER BY version DESC LIMIT 1",
                )?
                .query_row(params![tenant.as_str(), name], |row| Ok((row.get(0)?, row.get(1)?)))
                .optional()?;
            let version = match newest {
                Some((version, Some(known))) if known == documents.digest => version,
                newest => {
                    let newest = newest.map_or(0, |(version, _)| version);
                    let version = newest.max(forgotten(change, tenant)?).saturating_add(1);
                    change.execute(
                        "INSERT INTO policies (tenant, name, version, digest, created_at)
                         VALUES (?1, ?2, ?3, ?4, ?5)",
                        params![tenant.as_str(), name, version, documents.digest, now_ms()],
                    )?;
                    check_versions(change, tenant, ROOM.versions)?;
                    keep(change, tenant, documents)?;
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
            let removed: Vec<String> = change
                .prepare_cached(
                    "SELECT digest FROM policies WHERE tenant = ?1 AND name = ?2
                     AND (?3 IS NULL OR version = ?3) AND digest IS NOT NULL",
                )?
                .query_map(params![tenant.as_str(), name, version], |row| row.get(0))?
                .collect::<rusqlite::Result<_>>()?;
            change.execute(
                "UPDATE policies SET digest = NULL WHERE tenant = ?1 AND name = ?2
                 AND (?3 IS NULL OR version = ?3)",
                params![tenant.as_str(), name, version],
            )?;
            // The highest number tells that of the next, so that of the others nothing is to be remembered.
            change.execute(
                "DELETE FROM policies WHERE tenant = ?1 AND name = ?2 AND digest IS NULL AND version <
                 (SELECT max(version) FROM policies WHERE tenant = ?1 AND name = ?2)",
                params![tenant.as_str(), name],
            )?;
            forget_names(change, tenant)?;
            let forget = format!("DELETE FROM policy_documents WHERE digest = ?1 AND {IS_UNUSED}");
            for digest in &removed {
                change.prepare_cached(&forget)?.execute([digest])?;
            }
            Ok(!removed.is_empty())
        })
        .map_err(failed)
    }
}

/// Keeps documents that the tenant brings, if it has room for them, unless they are kept already.
pub(super) fn keep(
    change: &Change<'_>,
    tenant: &TenantId,
    documents: Documents<'_>,
) -> Result<(), Fault> {
    let added = change
        .prepare_cached(
            "INSERT INTO policy_documents (digest, layers, tenant) VALUES (?1, ?2, ?3)
             ON CONFLICT (digest) DO NOTHING",
        )?
        .execute([documents.digest, documents.layers, tenant.as_str()])?;
    if added > 0 { check_bytes(change, tenant, ROOM.bytes) } else { Ok(()) }
}

pub(super) fn are_kept(change: &Change<'_>, digest: &str) -> rusqlite::Result<bool> {
    change
        .prepare_cached("SELECT EXISTS (SELECT 1 FROM policy_documents WHERE digest = ?1)")?
        .query_row([digest], |row| row.get(0))
}

fn check_versions(change: &Change<'_>, tenant: &TenantId, most: u64) -> Result<(), Fault> {
    let versions: i64 = change
        .prepare_cached("SELECT count(*) FROM policies WHERE tenant = ?1 AND digest IS NOT NULL")?
        .query_row([tenant.as_str()], |row| row.get(0))?;
    if versions.unsigned_abs() <= most {
        return Ok(());
    }
    Err(refused(format!("tenant `{tenant}` keeps {most} versions of policies already")))
}

/// Where there is too much, what only sandboxes that have ended ran under goes before its time, the oldest first.
fn check_bytes(change: &Change<'_>, tenant: &TenantId, most: u64) -> Result<(), Fault> {
    while takes_more(change, tenant, most)? {
        if forget_oldest(change, tenant)? == 0 {
            hand_over(change, tenant)?;
            break;
        }
    }
    if !takes_more(change, tenant, most)? {
        return Ok(());
    }
    let most = format_bytes(most);
    Err(refused(format!("the policies of tenant `{tenant}` would take more than {most} together")))
}

fn takes_more(change: &Change<'_>, tenant: &TenantId, most: u64) -> rusqlite::Result<bool> {
    let bytes: Option<i64> = change
        .prepare_cached("SELECT bytes FROM policy_rooms WHERE tenant = ?1")?
        .query_row([tenant.as_str()], |row| row.get(0))
        .optional()?;
    Ok(bytes.is_some_and(|bytes| bytes.unsigned_abs() > most))
}

/// Some documents that only sandboxes ran under which have ended. How many there were.
fn forget_oldest(change: &Change<'_>, tenant: &TenantId) -> rusqlite::Result<usize> {
    change
        .prepare_cached(
            "DELETE FROM policy_documents WHERE rowid IN (
                 SELECT rowid FROM policy_documents AS d WHERE tenant = ?1
                 AND NOT EXISTS (SELECT 1 FROM policies AS p WHERE p.digest = d.digest)
                 AND NOT EXISTS (SELECT 1 FROM sandboxes AS s
                                 WHERE s.policy = d.digest AND s.ended_at IS NULL)
                 ORDER BY rowid LIMIT ?2)",
        )?
        .execute(params![tenant.as_str(), FORGOTTEN_AT_ONCE])
}

/// What only others have by now is theirs.
fn hand_over(change: &Change<'_>, tenant: &TenantId) -> rusqlite::Result<()> {
    change
        .prepare_cached(
            "UPDATE policy_documents SET tenant = coalesce(
                 (SELECT tenant FROM policies AS p WHERE p.digest = policy_documents.digest LIMIT 1),
                 (SELECT tenant FROM sandboxes AS s
                  WHERE s.policy = policy_documents.digest AND s.ended_at IS NULL LIMIT 1))
             WHERE tenant = ?1
             AND NOT EXISTS (SELECT 1 FROM policies AS p
                             WHERE p.digest = policy_documents.digest AND p.tenant = ?1)
             AND NOT EXISTS (SELECT 1 FROM sandboxes AS s
                             WHERE s.policy = policy_documents.digest AND s.ended_at IS NULL
                             AND s.tenant = ?1)",
        )?
        .execute([tenant.as_str()])
        .map(drop)
}

fn refused(message: String) -> Fault {
    Fault::Refused(
        Error::new(Code::QuotaExceeded, message)
            .with_remedy("remove old versions, as `belljar policy rm NAME@1` does, or destroy sandboxes that brought theirs"),
    )
}

/// The highest number among those that are remembered without their names.
fn forgotten(change: &Change<'_>, tenant: &TenantId) -> rusqlite::Result<u32> {
    change
        .prepare_cached(
            "SELECT coalesce(max(version), 0) FROM policies WHERE tenant = ?1 AND name = ?2",
        )?
        .query_row([tenant.as_str(), FORGOTTEN], |row| row.get(0))
}

/// Beyond a bound, of the names whose last versions are the oldest only the highest number is remembered: new ones go on from
/// there, so that no number of any of them comes again.
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

/// Forgets documents that nothing refers to any more.
pub(super) fn prune(change: &Change<'_>) -> rusqlite::Result<()> {
    let forget = format!("DELETE FROM policy_documents WHERE {IS_UNUSED}");
    change.prepare_cached(&forget)?.execute([]).map(drop)
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

    /// Puts documents that are nothing but their digest.
    async fn put(store: &SqliteStore, tenant: &TenantId, name: &str, digest: &str) -> Result<u32> {
        let put = store.put_policy(tenant, name, Documents { digest, layers: digest }).await;
        put.map(|kept| kept.version)
    }

    #[tokio::test]
    async fn a_tenant_keeps_a_bounded_number_of_versions() {
        let (_directory, store) = store();
        let (one, two) = (tenant("one"), tenant("two"));
        for number in 1..=MAX_VERSIONS {
            let version = put(&store, &one, "web", &format!("digest {number}")).await.unwrap();
            assert_eq!(u64::from(version), number);
        }
        let refused = put(&store, &one, "api", "another").await.unwrap_err();
        assert_eq!(refused.code(), Code::QuotaExceeded);
        assert_eq!(store.kept_policy(&one, "api", None).await.unwrap(), None);
        assert_eq!(store.documents("another").await.unwrap(), None);
        // What is kept already is no new version, and another tenant has its own room.
        put(&store, &one, "web", &format!("digest {MAX_VERSIONS}")).await.unwrap();
        put(&store, &two, "api", "another").await.unwrap();
        assert!(store.remove_policy(&one, "web", Some(7)).await.unwrap());
        assert_eq!(store.documents("digest 7").await.unwrap(), None);
        put(&store, &one, "api", "another").await.unwrap();
    }

    #[tokio::test]
    async fn documents_count_once_and_those_of_ended_sandboxes_give_way() {
        let (_directory, store) = store();
        let (one, two) = (tenant("one"), tenant("two"));
        let layers = &"ü".repeat(50);
        for (tenant, name, digest) in
            [(&one, "a", "x"), (&one, "b", "x"), (&two, "c", "x"), (&one, "c", "y")]
        {
            store.put_policy(tenant, name, Documents { digest, layers }).await.unwrap();
        }
        let sandbox = |id: &str, policy: &str, ended: bool| {
            let sandbox = "INSERT INTO sandboxes (id, backend, state, created_at, used_at, details, tenant, policy, ended_at)
                           VALUES (?1, '', 'ready', 0, 0, '{}', 'one', ?2, ?3)";
            let ended = ended.then_some(1);
            store.lock().execute(sandbox, params![id, policy, ended]).unwrap();
            let documents = Documents { digest: policy, layers };
            store.write(|change| keep(change, &one, documents)).map_err(Error::from)
        };
        sandbox("live", "live", false).unwrap();
        sandbox("ended", "ended", true).unwrap();
        sandbox("both", "live", true).unwrap();
        let room = |bytes| {
            let checked = store.write(|change| check_bytes(change, &one, bytes));
            checked.map_err(|fault| Error::from(fault).to_string())
        };
        let kept = async || {
            let mut kept = Vec::new();
            for digest in ["x", "y", "live", "ended"] {
                kept.push(store.documents(digest).await.unwrap().is_some());
            }
            kept
        };
        let counted = |tenant: &TenantId| -> i64 {
            let bytes = "SELECT bytes FROM policy_rooms WHERE tenant = ?1";
            store.lock().query_row(bytes, [tenant.as_str()], |row| row.get(0)).unwrap()
        };
        assert_eq!(counted(&one), 400);
        assert_eq!(room(400), Ok(()));
        assert_eq!(kept().await, [true; 4]);
        assert_eq!(room(399), Ok(()));
        assert_eq!(kept().await, [true, true, true, false]);
        assert!(room(299).unwrap_err().contains("more than 299"));
        // What nothing refers to goes at once.
        store.remove_policy(&one, "c", None).await.unwrap();
        store.remove_policy(&one, "b", None).await.unwrap();
        store.remove_policy(&one, "a", None).await.unwrap();
        assert_eq!(kept().await, [true, false, true, false], "another tenant has it, too");
        // And it is that one's where room is short.
        assert_eq!(room(200), Ok(()));
        assert_eq!(room(199), Ok(()));
        assert_eq!(room(100), Ok(()));
        assert_eq!((counted(&one), counted(&two)), (100, 100));
        assert!(room(99).is_err());
        let theirs = store.write(|change| check_bytes(change, &two, 99));
        assert!(theirs.is_err(), "one that has it");
        store.lock().execute("DELETE FROM sandboxes", []).unwrap();
        store.write(prune).unwrap();
        assert_eq!(kept().await, [true, false, false, false]);
        assert_eq!((counted(&one), counted(&two)), (0, 100));
    }

    #[tokio::test]
    async fn no_more_documents_give_way_than_have_to() {
        let (_directory, store) = store();
        let one = tenant("one");
        let digests: Vec<_> = (0..100).map(|number| format!("{number:03}")).collect();
        for digest in &digests {
            let documents = Documents { digest, layers: "ten bytes." };
            store.write(|change| keep(change, &one, documents)).map_err(Error::from).unwrap();
        }
        store.write(|change| check_bytes(change, &one, 900)).map_err(Error::from).unwrap();
        for (number, digest) in digests.iter().enumerate() {
            let kept = store.documents(digest).await.unwrap().is_some();
            assert_eq!(kept, number >= FORGOTTEN_AT_ONCE as usize, "{digest}");
        }
    }

    #[tokio::test]
    async fn numbers_do_not_come_again_though_little_of_them_is_remembered() {
        let (_directory, store) = store();
        let (one, two) = (tenant("one"), tenant("two"));
        for digest in ["a", "b", "c"] {
            put(&store, &one, "web", digest).await.unwrap();
        }
        store.remove_policy(&one, "web", None).await.unwrap();
        assert_eq!(rows(&store), 1);
        put(&store, &one, "old", "a").await.unwrap();
        put(&store, &two, "old", "a").await.unwrap();
        assert_eq!(put(&store, &one, "web", "a").await.unwrap(), 4);
        store.remove_policy(&one, "web", None).await.unwrap();
        for number in 0..MAX_REMOVED + 10 {
            let name = format!("n{number}");
            put(&store, &one, &name, "a").await.unwrap();
            assert!(store.remove_policy(&one, &name, None).await.unwrap());
        }
        // Two policies, the removed ones, and what is remembered of the others.
        assert_eq!(rows(&store), 2 + MAX_REMOVED + 1);
        assert!(put(&store, &one, "web", "a").await.unwrap() > 4);
        assert!(put(&store, &one, "n0", "a").await.unwrap() > 1);
        assert_eq!(put(&store, &two, "web", "a").await.unwrap(), 1);
        let listed = store.kept_policies(&one, None).await.unwrap();
        let names: Vec<_> = listed.iter().map(|kept| kept.name.as_str()).collect();
        assert_eq!(names, ["n0", "old", "web"]);
        assert_eq!(store.kept_policy(&one, "old", None).await.unwrap().unwrap().version, 1);
    }
}
