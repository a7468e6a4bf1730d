//! The store in one SQLite file, shared by every process that uses the state directory.
//!
//! Write-ahead log, no fsync per transaction: what was committed survives the death of any process, and a power cut
//! loses at most the latest transactions, never consistency. Calls are made directly on the caller's thread: each takes
//! tens of microseconds, less than handing it to another thread would. Only the log is folded into the file elsewhere.

use std::cell::Cell;
use std::fs::File;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_codes::Code;
use belljar_policy::ProcessId;
use rusqlite::config::DbConfig;
use rusqlite::hooks::Wal;
use rusqlite::{Connection, OptionalExtension, Params, TransactionBehavior};
use tokio::sync::{oneshot, watch};

use super::rows::parsed;
use super::{Store, events, idempotency, keys, policies, schema};
use crate::time::now_ms;
use crate::{Error, Result, random};

/// How long to wait for another process's transaction. All transactions are tiny, so this only passes when the disk
/// or the machine is stuck.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// A write-ahead log of more pages than this is folded into the file by [`Store::maintain`].
const FOLD_PAGES: u32 = 2048;

/// If nobody ever maintains (a crash loop), or folding does not keep up, a commit folds by itself at this many pages.
const FOLD_AT_ONCE_PAGES: u32 = 4 * FOLD_PAGES;

/// How often it is tried to get to the end of the log before others have to wait for that.
const FOLD_TRIES: u32 = 10;

/// What a page takes up in the log: itself and a header.
const LOGGED_PAGE_BYTES: u32 = 4096 + 24;

/// What is left of the log when it begins anew: writing over it costs less than making it longer again.
const KEPT_LOG_BYTES: u32 = FOLD_PAGES * LOGGED_PAGE_BYTES;

/// How nice a thread is for which nobody waits.
const BACKGROUND: i32 = 10;

pub(crate) struct SqliteStore {
    connection: Arc<Mutex<Connection>>,
    /// Pages in the write-ahead log.
    logged: Arc<AtomicU32>,
    path: PathBuf,
    node: String,
    /// Counts transactions that told of something.
    told: watch::Sender<u64>,
}

impl SqliteStore {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut connection = Self::connect(path)
            .map_err(|source| failed_to(&format!("open `{}`", path.display()), source))?;
        schema::migrate(&mut connection)?;
        let node = node(&mut connection).map_err(failed)?;
        let logged = Arc::new(AtomicU32::new(logged_before(path)));
        let seen = Arc::clone(&logged);
        let hook = move |log: &mut Wal, pages: i32| {
            let pages = u32::try_from(pages).unwrap_or(0);
            seen.store(pages, Ordering::Relaxed);
            if pages >= FOLD_AT_ONCE_PAGES {
                // What could not be folded now is tried again with the next commit, which has nothing to do with it.
                let _ = log.checkpoint();
            }
            Ok(())
        };
        connection.wal_hook(Some(hook)).map_err(failed)?;
        let (told, _) = watch::channel(0);
        let connection = Arc::new(Mutex::new(connection));
        Ok(Self { connection, logged, path: path.to_owned(), node, told })
    }

    fn connect(path: &Path) -> rusqlite::Result<Connection> {
        let connection = Connection::open(path)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        let mode: String = connection.pragma_query_value(None, "journal_mode", |row| row.get(0))?;
        if mode != "wal" {
            connection.pragma_update(None, "journal_mode", "wal")?;
        }
        connection.pragma_update(None, "synchronous", "normal")?;
        connection.pragma_update(None, "journal_size_limit", KEPT_LOG_BYTES)?;
        // The last of many short-lived programs to close would pay for everybody's log, with two fsyncs.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        // Plans do not depend on what is bound: otherwise a statement that an index with a condition might serve is
        // parsed and planned anew every time, which was a tenth of the engine's work.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_prepared_statement_cache_capacity(64);
        Ok(connection)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Connection> {
        lock(&self.connection)
    }

    /// The answer to a question that is yes or no.
    pub(super) fn is_so(&self, question: &str, values: impl Params) -> Result<bool> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached(question).map_err(failed)?;
        statement.query_row(values, |row| row.get(0)).map_err(failed)
    }

    pub(super) fn write<T, E: From<rusqlite::Error>>(
        &self,
        act: impl FnOnce(&Change<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let (value, told) = {
            let connection = self.lock();
            let change = Change::begin(&connection)?;
            let value = act(&change)?;
            (value, change.commit()?)
        };
        if told {
            self.told.send_modify(|count| *count += 1);
        }
        Ok(value)
    }

    /// Long work for which nobody waits, on a connection of its own.
    pub(super) async fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> rusqlite::Result<T> + Send + 'static,
    ) -> Result<T> {
        let path = self.path.clone();
        let done = in_background(move || work(&Self::connect(&path)?)).await;
        let ended = || Error::new(Code::Internal, "a task of the store ended");
        done.ok_or_else(ended)?.map_err(failed)
    }

    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.told.subscribe()
    }
}

/// Why a transaction did not happen.
#[derive(Debug)]
pub(super) enum Fault {
    Database(rusqlite::Error),
    /// What the store knows forbids it.
    Refused(Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Fault> for Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Database(error) => failed(error),
            Fault::Refused(error) => error,
        }
    }
}

/// A transaction under way; undone unless it is committed.
pub(super) struct Change<'c> {
    connection: &'c Connection,
    told: Cell<bool>,
}

impl<'c> Change<'c> {
    /// As the library's own does, but with statements that are parsed once.
    fn begin(connection: &'c Connection) -> rusqlite::Result<Self> {
        connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
        Ok(Self { connection, told: Cell::new(false) })
    }

    /// Whether an event is part of it.
    fn commit(self) -> rusqlite::Result<bool> {
        self.connection.prepare_cached("COMMIT")?.execute([])?;
        Ok(self.told.get())
    }

    /// An event is part of it: whoever waits for events is woken when it is committed.
    pub(super) fn has_told(&self) {
        self.told.set(true);
    }
}

impl Deref for Change<'_> {
    type Target = Connection;
    fn deref(&self) -> &Self::Target {
        self.connection
    }
}

impl Drop for Change<'_> {
    fn drop(&mut self) {
        if !self.connection.is_autocommit() {
            let _ = self.connection.execute_batch("ROLLBACK");
        }
    }
}

#[async_trait::async_trait]
impl Store for SqliteStore {
    fn node(&self) -> &str {
        &self.node
    }

    async fn prune(&self, ended_before_ms: i64) -> Result<Vec<ProcessId>> {
        self.write(|change| {
            change
                .prepare_cached("DELETE FROM sandboxes WHERE ended_at < ?1")?
                .execute([ended_before_ms])?;
            events::prune(change, ended_before_ms)?;
            idempotency::prune(change)?;
            keys::prune(change, ended_before_ms)?;
            policies::prune(change)?;
            change
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
        self.write(|change| {
            let due = is_due(change)?;
            if due {
                set_meta(change, &key, &now.to_string())?;
            }
            Ok(due)
        })
        .map_err(failed)
    }

    async fn write_log(&self) {
        let path = log_of(&self.path);
        let written = in_background(move || File::open(path)?.sync_data()).await;
        if let Some(Err(error)) = written {
            tracing::debug!(%error, "the state's log was not written to the disk");
        }
    }

    async fn maintain(&self) -> Result<()> {
        if self.logged.load(Ordering::Relaxed) <= FOLD_PAGES {
            return Ok(());
        }
        let path = self.path.clone();
        let folded = in_background(move || fold_beside(&path)).await.unwrap_or(Ok(false));
        if !folded.map_err(failed)? {
            return Ok(());
        }
        // The log begins anew only where it is folded to its end, and under load there would always be another commit. So
        // the little that is left is folded while we commit nothing.
        let ours = Arc::clone(&self.connection);
        let rest = tokio::task::spawn_blocking(move || fold(&lock(&ours)));
        rest.await.unwrap_or(Ok(None)).map(drop).map_err(failed)
    }
}

/// Does work for which nobody waits, on a thread of its own. `None`: there was no thread for it, or it panicked.
async fn in_background<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (done, result) = oneshot::channel();
    let begun = std::thread::Builder::new().name("store".to_owned()).spawn(move || {
        let _ = rustix::process::setpriority_process(None, BACKGROUND);
        let _ = done.send(work());
    });
    begun.ok()?;
    result.await.ok()
}

fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    // A panic while holding the connection leaves a transaction that was rolled back on drop: still usable.
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Folds on a connection of its own: it waits for the disk, and commits go on meanwhile. Again for those, and each time there
/// are fewer: only when there are none does SQLite make the file itself durable, which takes longest. False: somebody else
/// is at it.
fn fold_beside(path: &Path) -> rusqlite::Result<bool> {
    let connection = SqliteStore::connect(path)?;
    let mut before = None;
    for _ in 0..FOLD_TRIES {
        let end = fold(&connection)?;
        if end.is_some() && end == before {
            break;
        }
        before = end;
    }
    Ok(before.is_some())
}

/// Folds what is in the log by now into the file, and tells how far that reached. `None`: somebody else is at it, or was
/// just then telling of a commit.
fn fold(connection: &Connection) -> rusqlite::Result<Option<u32>> {
    connection.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |row| {
        // Whoever did not come to it says -1.
        let (busy, end): (bool, i64) = (row.get(0)?, row.get(1)?);
        Ok(u32::try_from(end).ok().filter(|_| !busy))
    })
}

fn log_of(path: &Path) -> PathBuf {
    let mut log = path.to_owned().into_os_string();
    log.push("-wal");
    log.into()
}

/// At most this many pages are in the log of a file that is opened.
fn logged_before(path: &Path) -> u32 {
    let size = std::fs::metadata(log_of(path)).map_or(0, |metadata| metadata.len());
    u32::try_from(size / u64::from(LOGGED_PAGE_BYTES)).unwrap_or(u32::MAX)
}

pub(super) fn set_meta(connection: &Connection, key: &str, value: &str) -> rusqlite::Result<()> {
    connection
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

pub(super) fn to_json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|source| Error::new(Code::Internal, "write a record").with_source(source))
}

/// Durations beyond what SQLite can hold mean the same as its maximum: never.
pub(super) fn to_integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

pub(super) fn failed(source: rusqlite::Error) -> Error {
    failed_to("use the state database", source)
}

pub(super) fn failed_to(act: &str, source: rusqlite::Error) -> Error {
    use rusqlite::ErrorCode;
    let error = Error::new(Code::StateFailed, act);
    let error = match source.sqlite_error_code() {
        // Also where only the shared part of the log cannot grow.
        Some(ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => {
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
