//! The store in one SQLite file, shared by every process that uses the state directory.
//!
//! Write-ahead log, no fsync per transaction: what was committed survives the death of any process, and a power cut
//! loses at most the latest transactions, never consistency. Calls are made directly on the caller's thread: each takes
//! tens of microseconds, less than handing it to another thread would.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::{ProcessId, SandboxId};
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};

use super::record::{Details, ExitRecord, ProcessRecord, ProcessStatus, SandboxRecord, State};
use super::rows::{parsed, process_columns, process_from, sandbox_columns, sandbox_from};
use super::{End, Step, Store, Which, schema};
use crate::time::now_ms;
use crate::{Error, Result, random};

/// How long to wait for another process's transaction. All transactions are tiny, so this only passes when the disk
/// or the machine is stuck.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A write-ahead log above this size is folded into the file by [`Store::maintain`].
const CHECKPOINT_BYTES: u64 = 8 << 20;

/// If nobody ever maintains (a crash loop), SQLite folds by itself at this many pages.
const AUTOMATIC_CHECKPOINT_PAGES: u32 = 8192;

pub(crate) struct SqliteStore {
    connection: Mutex<Connection>,
    path: PathBuf,
    node: String,
}

impl SqliteStore {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut connection = Self::connect(path).map_err(|source| {
            Error::new(Code::StateFailed, format!("open `{}`", path.display())).with_source(source)
        })?;
        schema::migrate(&mut connection)?;
        let node = node(&mut connection).map_err(failed)?;
        Ok(Self { connection: Mutex::new(connection), path: path.to_owned(), node })
    }

    fn connect(path: &Path) -> rusqlite::Result<Connection> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
        if mode != "wal" {
            connection.pragma_update(None, "journal_mode", "wal")?;
        }
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "wal_autocheckpoint", AUTOMATIC_CHECKPOINT_PAGES)?;
        // The last of many short-lived programs to close would pay for everybody's log, with two fsyncs.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        // A panic while holding the connection leaves a transaction that was rolled back on drop: still usable.
        self.connection.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write<T>(
        &self,
        act: impl FnOnce(&Transaction<'_>) -> rusqlite::Result<T>,
    ) -> rusqlite::Result<T> {
        let mut connection = self.lock();
        let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let value = act(&transaction)?;
        transaction.commit()?;
        Ok(value)
    }
}

#[async_trait::async_trait]
impl Store for SqliteStore {
    fn node(&self) -> &str {
        &self.node
    }

    async fn reserve(&self, record: &SandboxRecord) -> Result<()> {
        let details = to_json(&record.details)?;
        let inserted = self.write(|transaction| {
            transaction
                .prepare_cached(
                    "INSERT INTO sandboxes (id, name, backend, state, owner, worker, created_at, used_at, idle_ms,
                     hard_ms, failure, details) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
                )?
                .execute(params![
                    record.id.as_str(),
                    record.name,
                    record.backend,
                    record.state.as_str(),
                    record.owner,
                    record.worker,
                    record.created_at,
                    record.used_at,
                    record.idle_ms.map(to_integer),
                    record.hard_ms.map(to_integer),
                    record.failure,
                    details,
                ])?;
            note(transaction, &record.id, Step::Reserved)?;
            note(transaction, &record.id, Step::Starting)
        });
        match inserted {
            Err(rusqlite::Error::SqliteFailure(error, _))
                if error.code == rusqlite::ErrorCode::ConstraintViolation =>
            {
                let name = record.name.as_deref().unwrap_or_else(|| record.id.as_str());
                Err(Error::new(Code::SandboxExists, format!("there is a sandbox `{name}` already"))
                    .with_remedy(format!("choose another name, or `belljar destroy {name}` first")))
            }
            other => other.map_err(failed),
        }
    }

    async fn journal(&self, id: &SandboxId, step: Step) -> Result<()> {
        self.write(|transaction| note(transaction, id, step)).map_err(failed)
    }

    async fn describe(&self, id: &SandboxId, step: Step, details: &Details) -> Result<()> {
        let details = to_json(details)?;
        self.write(|transaction| {
            transaction
                .prepare_cached("UPDATE sandboxes SET details = ?2 WHERE id = ?1")?
                .execute(params![id.as_str(), details])?;
            note(transaction, id, step)
        })
        .map_err(failed)
    }

    async fn ready(&self, id: &SandboxId) -> Result<()> {
        self.write(|transaction| {
            transaction
                .prepare_cached(
                    "UPDATE sandboxes SET state = 'ready', used_at = ?2, worker = NULL WHERE id = ?1",
                )?
                .execute(params![id.as_str(), now_ms()])?;
            note(transaction, id, Step::Ready)
        })
        .map_err(failed)
    }

    async fn claim(
        &self,
        id: &SandboxId,
        seen: Option<&str>,
        worker: &str,
        steps: &[Step],
        state: Option<State>,
    ) -> Result<bool> {
        self.write(|transaction| {
            let changed = transaction
                .prepare_cached(
                    "UPDATE sandboxes SET worker = ?3, state = coalesce(?4, state)
                     WHERE id = ?1 AND worker IS ?2 AND ended_at IS NULL",
                )?
                .execute(params![id.as_str(), seen, worker, state.map(State::as_str)])?;
            if changed == 1 {
                steps.iter().try_for_each(|step| note(transaction, id, *step))?;
            }
            Ok(changed == 1)
        })
        .map_err(failed)
    }

    async fn release(&self, id: &SandboxId, worker: &str) -> Result<()> {
        self.write(|transaction| {
            transaction
                .prepare_cached("UPDATE sandboxes SET worker = NULL WHERE id = ?1 AND worker = ?2")?
                .execute([id.as_str(), worker])
        })
        .map(drop)
        .map_err(failed)
    }

    async fn end(&self, id: &SandboxId, end: &End) -> Result<()> {
        let (state, reason) = match end {
            End::Destroyed(reason) => (State::Destroyed, reason.as_deref()),
            End::Failed(reason) => (State::Failed, Some(reason.as_str())),
        };
        let now = now_ms();
        self.write(|transaction| {
            transaction
                .prepare_cached(
                    "UPDATE sandboxes SET state = ?2, failure = coalesce(?3, failure), ended_at = ?4,
                     worker = NULL
                     WHERE id = ?1",
                )?
                .execute(params![id.as_str(), state.as_str(), reason, now])?;
            transaction
                .prepare_cached("DELETE FROM journal WHERE sandbox = ?1")?
                .execute([id.as_str()])?;
            transaction
                .prepare_cached("DELETE FROM ensured WHERE sandbox = ?1")?
                .execute([id.as_str()])?;
            transaction
                .prepare_cached(
                    "UPDATE processes SET status = 'lost', finished_at = ?2
                     WHERE sandbox = ?1 AND finished_at IS NULL",
                )?
                .execute(params![id.as_str(), now])?;
            Ok(())
        })
        .map_err(failed)
    }

    async fn touch(&self, id: &SandboxId) -> Result<()> {
        self.write(|transaction| touch(transaction, id)).map_err(failed)
    }

    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached(concat!(sandbox_columns!(), " WHERE id = ?1"))
            .map_err(failed)?;
        statement.query_row([id.as_str()], sandbox_from).optional().map_err(failed)
    }

    async fn sandbox_named(&self, name: &str) -> Result<Option<SandboxRecord>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached(concat!(
                sandbox_columns!(),
                " WHERE name = ?1 AND state IN ('creating', 'ready', 'paused')"
            ))
            .map_err(failed)?;
        statement.query_row([name], sandbox_from).optional().map_err(failed)
    }

    async fn sandboxes(&self, which: Which) -> Result<Vec<SandboxRecord>> {
        let query = match which {
            Which::Live => {
                concat!(sandbox_columns!(), " WHERE ended_at IS NULL ORDER BY created_at, id")
            }
            Which::Unfinished => {
                concat!(
                    sandbox_columns!(),
                    " WHERE ended_at IS NULL AND state IN ('creating', 'destroying')"
                )
            }
            Which::Ephemeral => {
                concat!(sandbox_columns!(), " WHERE ended_at IS NULL AND owner IS NOT NULL")
            }
        };
        let connection = self.lock();
        let mut statement = connection.prepare_cached(query).map_err(failed)?;
        let rows = statement.query_map([], sandbox_from).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    async fn steps(&self, id: &SandboxId) -> Result<Vec<String>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached("SELECT step FROM journal WHERE sandbox = ?1 ORDER BY seq")
            .map_err(failed)?;
        let rows = statement.query_map([id.as_str()], |row| row.get(0)).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    async fn is_ensured(&self, id: &SandboxId, hash: &str) -> Result<bool> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached("SELECT 1 FROM ensured WHERE sandbox = ?1 AND hash = ?2")
            .map_err(failed)?;
        statement.exists([id.as_str(), hash]).map_err(failed)
    }

    async fn mark_ensured(&self, id: &SandboxId, hash: &str) -> Result<()> {
        self.write(|transaction| {
            transaction
                .prepare_cached("INSERT OR IGNORE INTO ensured (sandbox, hash) VALUES (?1, ?2)")?
                .execute([id.as_str(), hash])
        })
        .map(drop)
        .map_err(failed)
    }

    async fn add_process(&self, record: &ProcessRecord) -> Result<()> {
        let exit = record.exit.as_ref().map(to_json).transpose()?;
        self.write(|transaction| {
            transaction
                .prepare_cached(
                    "INSERT INTO processes (id, sandbox, status, attendant, command, pid, timeout_ms, started_at,
                     finished_at, exit) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)",
                )?
                .execute(params![
                    record.id.as_str(),
                    record.sandbox.as_str(),
                    record.status.as_str(),
                    record.attendant,
                    record.command,
                    record.pid,
                    record.timeout_ms.map(to_integer),
                    record.started_at,
                    record.finished_at,
                    exit,
                ])?;
            touch(transaction, &record.sandbox)
        })
        .map_err(failed)
    }

    async fn take_over(&self, id: &ProcessId, from: &str, to: &str) -> Result<bool> {
        self.write(|transaction| {
            transaction
                .prepare_cached(
                    "UPDATE processes SET attendant = ?3
                     WHERE id = ?1 AND attendant = ?2 AND finished_at IS NULL",
                )?
                .execute([id.as_str(), from, to])
        })
        .map(|changed| changed == 1)
        .map_err(failed)
    }

    async fn process_started(&self, id: &ProcessId, pid: u32) -> Result<()> {
        self.write(|transaction| {
            transaction
                .prepare_cached(
                    "UPDATE processes SET status = 'running', pid = ?2
                     WHERE id = ?1 AND status = 'starting'",
                )?
                .execute(params![id.as_str(), pid])
        })
        .map(drop)
        .map_err(failed)
    }

    async fn process_ended(
        &self,
        id: &ProcessId,
        status: ProcessStatus,
        exit: Option<&ExitRecord>,
    ) -> Result<()> {
        let exit = exit.map(to_json).transpose()?;
        self.write(|transaction| {
            transaction
                .prepare_cached(
                    "UPDATE processes SET status = ?2, exit = ?3, finished_at = ?4
                     WHERE id = ?1 AND finished_at IS NULL",
                )?
                .execute(params![id.as_str(), status.as_str(), exit, now_ms()])
        })
        .map(drop)
        .map_err(failed)
    }

    async fn process(&self, id: &ProcessId) -> Result<Option<ProcessRecord>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached(concat!(process_columns!(), " WHERE id = ?1"))
            .map_err(failed)?;
        statement.query_row([id.as_str()], process_from).optional().map_err(failed)
    }

    async fn processes(&self, sandbox: Option<&SandboxId>) -> Result<Vec<ProcessRecord>> {
        let connection = self.lock();
        let query = match sandbox {
            Some(_) => {
                concat!(process_columns!(), " WHERE sandbox = ?1 ORDER BY started_at DESC, id")
            }
            None => concat!(process_columns!(), " ORDER BY started_at DESC, id"),
        };
        let mut statement = connection.prepare_cached(query).map_err(failed)?;
        let parameters = rusqlite::params_from_iter(sandbox.map(SandboxId::as_str));
        let rows = statement.query_map(parameters, process_from).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    async fn unfinished_processes(&self) -> Result<Vec<ProcessRecord>> {
        let connection = self.lock();
        let query = concat!(process_columns!(), " WHERE finished_at IS NULL");
        let mut statement = connection.prepare_cached(query).map_err(failed)?;
        let rows = statement.query_map([], process_from).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    async fn prune(&self, ended_before_ms: i64) -> Result<Vec<ProcessId>> {
        self.write(|transaction| {
            transaction
                .prepare_cached("DELETE FROM sandboxes WHERE ended_at < ?1")?
                .execute([ended_before_ms])?;
            transaction
                .prepare_cached("DELETE FROM processes WHERE finished_at < ?1 RETURNING id")?
                .query_map([ended_before_ms], |row| parsed(row, 0, ProcessId::parse))?
                .collect()
        })
        .map_err(failed)
    }

    async fn claim_turn(&self, job: &str, interval_ms: i64) -> Result<bool> {
        let (key, now) = (format!("turn.{job}"), now_ms());
        let is_due = |connection: &Connection| {
            let mut statement =
                connection.prepare_cached("SELECT value FROM meta WHERE key = ?1")?;
            let last: Option<String> = statement.query_row([&key], |row| row.get(0)).optional()?;
            let last = last.and_then(|last| last.parse::<i64>().ok());
            // A clock that was set back must not stop the job for good.
            Ok::<_, rusqlite::Error>(
                last.is_none_or(|last| !(0..interval_ms).contains(&(now - last))),
            )
        };
        if !is_due(&self.lock()).map_err(failed)? {
            return Ok(false);
        }
        self.write(|transaction| {
            let due = is_due(transaction)?;
            if due {
                set_meta(transaction, &key, &now.to_string())?;
            }
            Ok(due)
        })
        .map_err(failed)
    }

    async fn maintain(&self) -> Result<()> {
        let mut log = self.path.clone().into_os_string();
        log.push("-wal");
        let size = std::fs::metadata(PathBuf::from(log)).map_or(0, |metadata| metadata.len());
        if size < CHECKPOINT_BYTES {
            return Ok(());
        }
        // On a thread and a connection of its own: it waits for the disk, and commits go on meanwhile.
        let path = self.path.clone();
        let folded = tokio::task::spawn_blocking(move || {
            let connection = Self::connect(&path)?;
            connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))
        });
        match folded.await {
            Ok(result) => result.map_err(failed),
            Err(source) => {
                Err(Error::new(Code::Internal, "fold the state's log").with_source(source))
            }
        }
    }
}

fn note(transaction: &Transaction<'_>, id: &SandboxId, step: Step) -> rusqlite::Result<()> {
    transaction
        .prepare_cached(
            "INSERT INTO journal (sandbox, seq, step, at) VALUES (?1,
             (SELECT coalesce(max(seq), 0) + 1 FROM journal WHERE sandbox = ?1), ?2, ?3)",
        )?
        .execute(params![id.as_str(), step.as_str(), now_ms()])
        .map(drop)
}

fn touch(transaction: &Transaction<'_>, id: &SandboxId) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("UPDATE sandboxes SET used_at = ?2 WHERE id = ?1")?
        .execute(params![id.as_str(), now_ms()])
        .map(drop)
}

fn set_meta(transaction: &Transaction<'_>, key: &str, value: &str) -> rusqlite::Result<()> {
    transaction
        .prepare_cached("INSERT OR REPLACE INTO meta (key, value) VALUES (?1, ?2)")?
        .execute([key, value])
        .map(drop)
}

/// The node's part of sandbox ids: chosen at random when the state directory is new.
fn node(connection: &mut Connection) -> rusqlite::Result<String> {
    let read = |connection: &Connection| {
        connection
            .query_row("SELECT value FROM meta WHERE key = 'node'", [], |row| row.get(0))
            .optional()
    };
    if let Some(node) = read(connection)? {
        return Ok(node);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let node = match read(&transaction)? {
        Some(node) => node,
        None => {
            let node = random::node();
            set_meta(&transaction, "node", &node)?;
            node
        }
    };
    transaction.commit()?;
    Ok(node)
}

fn to_json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|source| Error::new(Code::Internal, "write a record").with_source(source))
}

/// Durations beyond what SQLite can hold mean the same as its maximum: never.
fn to_integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn failed(source: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    let error = Error::new(Code::StateFailed, "use the state database");
    let error = match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => {
            error.with_remedy("free space on the file system of the state directory")
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => error
            .with_remedy(
                "make the state directory writable for this user, or set BELLJAR_STATE_DIR",
            ),
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            error.with_remedy("another process holds the database; look for one that hangs")
        }
        _ => error,
    };
    error.with_source(source)
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
