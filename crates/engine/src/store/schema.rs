//! The schema of the SQLite store and the way from each older version to the newest.
//!
//! `user_version` says which migrations a file has had. A file from a newer program is refused, never touched.

use belljar_codes::Code;
use rusqlite::{Connection, TransactionBehavior};

use super::sqlite::failed_to;
use crate::{Error, Result};

// An index costs a page in the write-ahead log with every change it takes part in, on the way of every command. So only
// what every command asks for has one; rare questions read the whole table.

/// Each entry brings the schema from version `index` to `index + 1`. Entries are only added.
const MIGRATIONS: &[&str] = &["
    CREATE TABLE meta (
        key     TEXT PRIMARY KEY,
        value   TEXT NOT NULL
    ) WITHOUT ROWID;

    CREATE TABLE sandboxes (
        id          TEXT PRIMARY KEY,
        name        TEXT,
        backend     TEXT NOT NULL,
        state       TEXT NOT NULL,
        owner       TEXT,
        worker      TEXT,
        created_at  INTEGER NOT NULL,
        used_at     INTEGER NOT NULL,
        ended_at    INTEGER,
        idle_ms     INTEGER,
        hard_ms     INTEGER,
        failure     TEXT,
        details     TEXT NOT NULL
    ) WITHOUT ROWID;
    CREATE UNIQUE INDEX sandbox_names ON sandboxes (name)
        WHERE name IS NOT NULL AND state IN ('creating', 'ready', 'paused');
    CREATE INDEX live_sandboxes ON sandboxes (owner) WHERE ended_at IS NULL;

    CREATE TABLE journal (
        sandbox TEXT NOT NULL,
        seq     INTEGER NOT NULL,
        step    TEXT NOT NULL,
        at      INTEGER NOT NULL,
        PRIMARY KEY (sandbox, seq)
    ) WITHOUT ROWID;

    CREATE TABLE ensured (
        sandbox TEXT NOT NULL,
        hash    TEXT NOT NULL,
        PRIMARY KEY (sandbox, hash)
    ) WITHOUT ROWID;

    CREATE TABLE processes (
        id          TEXT PRIMARY KEY,
        sandbox     TEXT NOT NULL,
        status      TEXT NOT NULL,
        attendant   TEXT NOT NULL,
        command     TEXT NOT NULL,
        pid         INTEGER,
        timeout_ms  INTEGER,
        started_at  INTEGER NOT NULL,
        finished_at INTEGER,
        exit        TEXT
    ) WITHOUT ROWID;
    CREATE INDEX running_processes ON processes (sandbox) WHERE finished_at IS NULL;
", "
    ALTER TABLE sandboxes ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
    ALTER TABLE sandboxes ADD COLUMN hard_from INTEGER;
    ALTER TABLE sandboxes ADD COLUMN memory_bytes INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sandboxes ADD COLUMN milli_cpus INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE sandboxes ADD COLUMN disk_bytes INTEGER NOT NULL DEFAULT 0;
    DROP INDEX sandbox_names;
    CREATE UNIQUE INDEX sandbox_names ON sandboxes (tenant, name)
        WHERE name IS NOT NULL AND state IN ('creating', 'ready', 'paused');

    ALTER TABLE processes ADD COLUMN tenant TEXT NOT NULL DEFAULT 'default';
    ALTER TABLE processes ADD COLUMN details TEXT NOT NULL DEFAULT '{}';

    CREATE TABLE tenants (
        name                TEXT PRIMARY KEY,
        created_at          INTEGER NOT NULL,
        sandboxes           INTEGER,
        memory_bytes        INTEGER,
        milli_cpus          INTEGER,
        disk_bytes          INTEGER,
        processes           INTEGER,
        requests_per_second INTEGER
    ) WITHOUT ROWID;
    INSERT INTO tenants (name, created_at) VALUES ('default', 0);

    -- Numbered without gaps: the last row is never removed, so that the next number follows from it.
    CREATE TABLE events (
        seq     INTEGER PRIMARY KEY,
        at      INTEGER NOT NULL,
        tenant  TEXT NOT NULL,
        sandbox TEXT NOT NULL,
        process TEXT,
        kind    TEXT NOT NULL,
        detail  TEXT NOT NULL
    );

    CREATE TABLE idempotency (
        tenant      TEXT NOT NULL,
        operation   TEXT NOT NULL,
        key         TEXT NOT NULL,
        hash        TEXT NOT NULL,
        resource    TEXT NOT NULL,
        at          INTEGER NOT NULL,
        PRIMARY KEY (tenant, operation, key)
    ) WITHOUT ROWID;

    CREATE TABLE keys (
        id          TEXT PRIMARY KEY,
        name        TEXT NOT NULL,
        tenant      TEXT NOT NULL,
        role        TEXT NOT NULL,
        sandbox     TEXT,
        scopes      TEXT NOT NULL,
        hash        BLOB NOT NULL,
        own         INTEGER NOT NULL,
        created_at  INTEGER NOT NULL,
        expires_at  INTEGER,
        revoked_at  INTEGER,
        used_at     INTEGER
    ) WITHOUT ROWID;

    CREATE TABLE webhooks (
        id          TEXT PRIMARY KEY,
        tenant      TEXT,
        url         TEXT NOT NULL,
        secret      TEXT NOT NULL,
        kinds       TEXT NOT NULL,
        created_at  INTEGER NOT NULL,
        cursor      INTEGER NOT NULL,
        attempts    INTEGER NOT NULL DEFAULT 0,
        retry_at    INTEGER,
        error       TEXT
    ) WITHOUT ROWID;
", "
    -- Rows of a table without rowid are keys: one that does not fit into a quarter of a page is read as a whole, from
    -- the file, with every comparison on the way to another.
    CREATE TABLE sandboxes_by_rowid (
        id              TEXT PRIMARY KEY NOT NULL,
        name            TEXT,
        backend         TEXT NOT NULL,
        state           TEXT NOT NULL,
        owner           TEXT,
        worker          TEXT,
        created_at      INTEGER NOT NULL,
        used_at         INTEGER NOT NULL,
        ended_at        INTEGER,
        idle_ms         INTEGER,
        hard_ms         INTEGER,
        failure         TEXT,
        details         TEXT NOT NULL,
        tenant          TEXT NOT NULL DEFAULT 'default',
        hard_from       INTEGER,
        memory_bytes    INTEGER NOT NULL DEFAULT 0,
        milli_cpus      INTEGER NOT NULL DEFAULT 0,
        disk_bytes      INTEGER NOT NULL DEFAULT 0
    );
    INSERT INTO sandboxes_by_rowid SELECT * FROM sandboxes ORDER BY created_at;
    DROP TABLE sandboxes;
    ALTER TABLE sandboxes_by_rowid RENAME TO sandboxes;
    CREATE UNIQUE INDEX sandbox_names ON sandboxes (tenant, name)
        WHERE name IS NOT NULL AND state IN ('creating', 'ready', 'paused');
    CREATE INDEX live_sandboxes ON sandboxes (owner) WHERE ended_at IS NULL;
", "
    CREATE TABLE policy_documents (
        digest      TEXT PRIMARY KEY NOT NULL,
        layers      TEXT NOT NULL,
        noted_at    INTEGER NOT NULL
    );

    -- Without a digest: the version was removed, and its number is not used again.
    CREATE TABLE policies (
        tenant      TEXT NOT NULL,
        name        TEXT NOT NULL,
        version     INTEGER NOT NULL,
        digest      TEXT,
        created_at  INTEGER NOT NULL,
        PRIMARY KEY (tenant, name, version)
    ) WITHOUT ROWID;
", "
    CREATE TABLE secrets (
        tenant      TEXT NOT NULL,
        name        TEXT NOT NULL,
        sealed      BLOB NOT NULL,
        created_at  INTEGER NOT NULL,
        changed_at  INTEGER NOT NULL,
        PRIMARY KEY (tenant, name)
    );
", "
    CREATE TABLE ports (
        sandbox TEXT NOT NULL,
        port    INTEGER NOT NULL,
        public  INTEGER NOT NULL,
        PRIMARY KEY (sandbox, port)
    ) WITHOUT ROWID;
", "
    CREATE TABLE authorities (
        sandbox     TEXT PRIMARY KEY NOT NULL,
        certificate TEXT NOT NULL,
        sealed      BLOB NOT NULL
    );
", "
    INSERT OR IGNORE INTO meta (key, value) SELECT 'had_keys', '1' FROM keys LIMIT 1;
", "
    CREATE INDEX keys_own ON keys (hash) WHERE own;
    -- All that counting a tenant's keys asks for, so that those of others are not looked at.
    CREATE INDEX keys_counted ON keys (tenant, role, revoked_at, expires_at);
", "
    -- What documents are kept for, and who brought them first.
    ALTER TABLE sandboxes ADD COLUMN policy TEXT;
    UPDATE sandboxes SET policy = json_extract(details, '$.policy.digest');
    CREATE INDEX sandbox_policies ON sandboxes (policy) WHERE policy IS NOT NULL;
    CREATE INDEX policy_digests ON policies (digest) WHERE digest IS NOT NULL;
    ALTER TABLE policy_documents DROP COLUMN noted_at;
    ALTER TABLE policy_documents ADD COLUMN tenant TEXT;
    UPDATE policy_documents SET tenant = coalesce(
        (SELECT tenant FROM policies AS p WHERE p.digest = policy_documents.digest),
        (SELECT tenant FROM sandboxes AS s WHERE s.policy = policy_documents.digest));
    CREATE INDEX policy_documents_brought ON policy_documents (tenant);
", "
    -- What documents take that a tenant brought, so that nobody adds them up. A row that `OR REPLACE` puts in the place of
    -- another would count with it: SQLite does not say then that the other goes.
    CREATE TABLE policy_rooms (
        tenant TEXT PRIMARY KEY NOT NULL,
        bytes  INTEGER NOT NULL
    ) WITHOUT ROWID;
    INSERT INTO policy_rooms SELECT tenant, sum(octet_length(layers)) FROM policy_documents
        WHERE tenant IS NOT NULL GROUP BY tenant;
    CREATE TRIGGER policy_document_brought AFTER INSERT ON policy_documents
        WHEN NEW.tenant IS NOT NULL BEGIN
        INSERT INTO policy_rooms VALUES (NEW.tenant, octet_length(NEW.layers))
            ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;
    END;
    CREATE TRIGGER policy_document_gone AFTER DELETE ON policy_documents BEGIN
        UPDATE policy_rooms SET bytes = bytes - octet_length(OLD.layers) WHERE tenant = OLD.tenant;
    END;
    CREATE TRIGGER policy_document_handed_over AFTER UPDATE OF tenant ON policy_documents BEGIN
        UPDATE policy_rooms SET bytes = bytes - octet_length(OLD.layers) WHERE tenant = OLD.tenant;
        INSERT INTO policy_rooms SELECT NEW.tenant, octet_length(NEW.layers) WHERE NEW.tenant IS NOT NULL
            ON CONFLICT (tenant) DO UPDATE SET bytes = bytes + excluded.bytes;
    END;
"];

/// Brings the file to the newest schema, once, however many processes open it at the same time.
pub(super) fn migrate(connection: &mut Connection) -> Result<()> {
    apply(connection, MIGRATIONS)
}

fn apply(connection: &mut Connection, migrations: &[&str]) -> Result<()> {
    let failed = |source| failed_to("bring the state to this version's schema", source);
    // The common case: nothing to do, and no write lock taken to find out.
    if version(connection).map_err(failed)? == migrations.len() {
        return Ok(());
    }
    let transaction =
        connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    let found = version(&transaction).map_err(failed)?;
    if found > migrations.len() {
        let known = migrations.len();
        return Err(Error::new(
            Code::StateTooNew,
            format!("the state has schema {found}, this version knows {known}"),
        )
        .with_remedy("use the newer version of Belljar, or another BELLJAR_STATE_DIR"));
    }
    for migration in &migrations[found..] {
        transaction.execute_batch(migration).map_err(failed)?;
    }
    transaction.pragma_update(None, "user_version", stored(migrations.len())).map_err(failed)?;
    transaction.commit().map_err(failed)
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    let version: i32 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    // A negative number is nothing this program ever wrote: as good as too new.
    Ok(usize::try_from(version).unwrap_or(usize::MAX))
}

fn stored(version: usize) -> i32 {
    i32::try_from(version).expect("a handful of migrations")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The schema before it was kept that there were keys.
    const HAD_KEYS: usize = 7;

    #[test]
    fn migrations_run_once_and_in_order() {
        let mut connection = Connection::open_in_memory().unwrap();
        let first = ["CREATE TABLE a (x)"];
        let both = ["CREATE TABLE a (x)", "ALTER TABLE a ADD COLUMN y"];
        apply(&mut connection, &first).unwrap();
        apply(&mut connection, &first).unwrap();
        apply(&mut connection, &both).unwrap();
        connection.execute("INSERT INTO a (x, y) VALUES (1, 2)", []).unwrap();
        assert_eq!(version(&connection).unwrap(), 2);
    }

    #[test]
    fn a_failed_migration_leaves_the_old_schema() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, &["CREATE TABLE a (x)"]).unwrap();
        let broken = ["CREATE TABLE a (x)", "CREATE TABLE b (x); CREATE TABLE a (x)"];
        assert_eq!(apply(&mut connection, &broken).unwrap_err().code(), Code::StateFailed);
        assert_eq!(version(&connection).unwrap(), 1);
        assert!(connection.prepare("SELECT x FROM b").is_err());
    }

    #[test]
    fn newer_state_is_refused_untouched() {
        let mut connection = Connection::open_in_memory().unwrap();
        connection.pragma_update(None, "user_version", stored(MIGRATIONS.len() + 1)).unwrap();
        assert_eq!(migrate(&mut connection).unwrap_err().code(), Code::StateTooNew);
        assert!(connection.prepare("SELECT id FROM sandboxes").is_err());
    }

    #[test]
    fn older_state_with_keys_is_known_to_have_had_some() {
        for keys in [0, 1] {
            let mut connection = Connection::open_in_memory().unwrap();
            apply(&mut connection, &MIGRATIONS[..HAD_KEYS]).unwrap();
            let key = "INSERT INTO keys (id, name, tenant, role, scopes, hash, own, created_at)
                       VALUES ('k', '', 'default', 'admin', '', x'00', 0, 1)";
            if keys > 0 {
                connection.execute(key, []).unwrap();
            }
            migrate(&mut connection).unwrap();
            let known = "SELECT count(*) FROM meta WHERE key = 'had_keys'";
            let known: i64 = connection.query_row(known, [], |row| row.get(0)).unwrap();
            assert_eq!(known, keys);
        }
    }

    #[test]
    fn documents_of_older_state_are_counted_for_whoever_has_them() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, &MIGRATIONS[..HAD_KEYS]).unwrap();
        let older = r#"
            INSERT INTO policy_documents VALUES ('a', '', 1), ('b', '', 1), ('c', '', 1);
            INSERT INTO policies VALUES ('one', 'web', 1, 'a', 1);
            INSERT INTO sandboxes (id, backend, state, created_at, used_at, details, tenant)
            VALUES ('s', 'native', 'ready', 1, 2, '{"policy": {"digest": "b"}}', 'two');"#;
        connection.execute_batch(older).unwrap();
        migrate(&mut connection).unwrap();
        let mut brought =
            connection.prepare("SELECT tenant FROM policy_documents ORDER BY digest").unwrap();
        let brought = brought.query_map([], |row| row.get::<_, Option<String>>(0)).unwrap();
        let brought: Vec<_> = brought.map(Result::unwrap).collect();
        assert_eq!(brought, [Some("one".to_owned()), Some("two".to_owned()), None]);
    }

    #[test]
    fn sandboxes_of_the_first_schema_are_kept() {
        let mut connection = Connection::open_in_memory().unwrap();
        apply(&mut connection, &MIGRATIONS[..1]).unwrap();
        let sandbox =
            "INSERT INTO sandboxes (id, name, backend, state, created_at, used_at, details)
                       VALUES (?1, ?1, 'native', 'ready', 1, 2, '{}')";
        connection.execute(sandbox, ["one"]).unwrap();
        migrate(&mut connection).unwrap();
        let kept = connection
            .query_row("SELECT id, used_at, details FROM sandboxes", [], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?, row.get::<_, String>(2)?))
            })
            .unwrap();
        assert_eq!(kept, ("one".to_owned(), 2, "{}".to_owned()));
        assert!(connection.execute(sandbox, ["one"]).is_err());
    }

    #[test]
    fn the_real_schema_applies() {
        let mut connection = Connection::open_in_memory().unwrap();
        migrate(&mut connection).unwrap();
        connection.prepare("SELECT id FROM sandboxes").unwrap();
    }
}
