//! Processes in the SQLite store.

use belljar_policy::{ProcessId, SandboxId, TenantId};
use rusqlite::{OptionalExtension, params};

use super::events::{tell_end, tell_start};
use super::listing::{Conditions, Listing, text};
use super::record::{ExitRecord, ProcessRecord, ProcessStatus};
use super::rows::{parsed, process_columns, process_from};
use super::sandboxes::{occupy, touch};
use super::sqlite::{Fault, failed, to_integer, to_json};
use super::{Claimed, KeyClaim, SqliteStore, idempotency, tenants};
use crate::Result;
use crate::query::ProcessQuery;
use crate::time::now_ms;

#[async_trait::async_trait]
pub(crate) trait ProcessStore: Send + Sync {
    /// Adds a process that is about to be started, and moves the sandbox's idle clock, unless the key is known. Refused where
    /// the sandbox is paused or gone.
    async fn add_process(&self, record: &ProcessRecord, key: Option<&KeyClaim>) -> Result<Claimed>;

    /// Makes another engine the attendant of a process that runs; false if somebody was faster.
    async fn take_over(&self, id: &ProcessId, from: &str, to: &str) -> Result<bool>;

    async fn process_started(&self, id: &ProcessId, pid: u32) -> Result<()>;

    /// Records how a process ended, unless its end is recorded already.
    async fn process_ended(
        &self,
        id: &ProcessId,
        status: ProcessStatus,
        exit: Option<&ExitRecord>,
    ) -> Result<()>;

    async fn process(&self, id: &ProcessId) -> Result<Option<ProcessRecord>>;

    /// Processes of one sandbox, or of all, newest first; one more than the limit where there are more. The sandbox in
    /// the query has been looked up already.
    async fn processes(
        &self,
        sandbox: Option<&SandboxId>,
        listing: &Listing<'_, ProcessQuery>,
    ) -> Result<Vec<ProcessRecord>>;

    /// Processes whose end is not recorded.
    async fn unfinished_processes(&self) -> Result<Vec<ProcessRecord>>;

    /// Whether there is one of them in this sandbox.
    async fn runs(&self, sandbox: &SandboxId) -> Result<bool>;

    /// Shows the processes of these tenants that have ended and may have left output, the latest first. This goes through
    /// all that there are, beside everybody else's work.
    async fn each_ended(
        &self,
        tenants: Vec<TenantId>,
        see: Box<dyn FnMut(Ended) + Send>,
    ) -> Result<()>;
}

/// A process that has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) process: ProcessId,
    pub(crate) tenant: TenantId,
    pub(crate) at: i64,
}

#[async_trait::async_trait]
impl ProcessStore for SqliteStore {
    async fn add_process(&self, record: &ProcessRecord, key: Option<&KeyClaim>) -> Result<Claimed> {
        let exit = record.exit.as_ref().map(to_json).transpose()?;
        let details = to_json(&record.details)?;
        let added = self.write(|change| {
            let claimed = idempotency::claim(change, &record.tenant, key, record.id.as_str())?;
            if claimed != Claimed::New {
                return Ok(claimed);
            }
            occupy(change, &record.sandbox)?;
            change
                .prepare_cached(
                    "INSERT INTO processes (id, sandbox, status, attendant, command, pid, timeout_ms, started_at,
                     finished_at, exit, tenant, details)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
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
                    record.tenant.as_str(),
                    details,
                ])?;
            tenants::check_process(change, &record.tenant)?;
            Ok::<_, Fault>(claimed)
        });
        Ok(added?)
    }

    async fn take_over(&self, id: &ProcessId, from: &str, to: &str) -> Result<bool> {
        self.write(|change| {
            change
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
        self.write(|change| {
            let sandbox = change
                .prepare_cached(
                    "UPDATE processes SET status = 'running', pid = ?2
                     WHERE id = ?1 AND status = 'starting' RETURNING sandbox",
                )?
                .query_row(params![id.as_str(), pid], |row| parsed(row, 0, SandboxId::parse))
                .optional()?;
            match sandbox {
                Some(sandbox) => tell_start(change, &sandbox, id),
                None => Ok(()),
            }
        })
        .map_err(failed)
    }

    async fn process_ended(
        &self,
        id: &ProcessId,
        status: ProcessStatus,
        exit: Option<&ExitRecord>,
    ) -> Result<()> {
        let text = exit.map(to_json).transpose()?;
        self.write(|change| {
            let unfinished = change
                .prepare_cached(
                    "UPDATE processes SET status = ?2, exit = ?3, finished_at = ?4
                     WHERE id = ?1 AND finished_at IS NULL RETURNING sandbox, pid IS NULL",
                )?
                .query_row(params![id.as_str(), status.as_str(), text, now_ms()], |row| {
                    Ok((parsed(row, 0, SandboxId::parse)?, row.get::<_, bool>(1)?))
                })
                .optional()?;
            let Some((sandbox, unseen)) = unfinished else { return Ok(()) };
            // The idle clock stood still while it ran, if that was more than a moment: its start was a use already.
            if !unseen {
                touch(change, &sandbox)?;
            }
            // A short one ends before its start is recorded; it ran all the same.
            if unseen && exit.is_some() {
                tell_start(change, &sandbox, id)?;
            }
            if exit.is_none() && status == ProcessStatus::Failed {
                idempotency::give_back(change, id.as_str())?;
            }
            tell_end(change, &sandbox, id, status, exit)
        })
        .map_err(failed)
    }

    async fn process(&self, id: &ProcessId) -> Result<Option<ProcessRecord>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached(concat!(process_columns!(), " WHERE id = ?1"))
            .map_err(failed)?;
        statement.query_row([id.as_str()], process_from).optional().map_err(failed)
    }

    async fn processes(
        &self,
        sandbox: Option<&SandboxId>,
        listing: &Listing<'_, ProcessQuery>,
    ) -> Result<Vec<ProcessRecord>> {
        let mut conditions = Conditions::default();
        conditions.add_scope(listing.scope, "sandbox");
        if let Some(sandbox) = sandbox {
            conditions.add_text("sandbox = ?", sandbox.as_str());
        }
        conditions.add_any("status", listing.query.statuses.iter().map(|status| status.as_str()));
        if let Some(after) = &listing.after {
            conditions.add("(started_at, id) < (?, ?)", [after.at.into(), text(&after.id)]);
        }
        let (query, values) =
            conditions.finish(process_columns!(), "started_at DESC, id DESC", listing.limit + 1);
        let connection = self.lock();
        let mut statement = connection.prepare(&query).map_err(failed)?;
        let rows = statement
            .query_map(rusqlite::params_from_iter(values), process_from)
            .map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    async fn unfinished_processes(&self) -> Result<Vec<ProcessRecord>> {
        let connection = self.lock();
        let query = concat!(process_columns!(), " WHERE finished_at IS NULL");
        let mut statement = connection.prepare_cached(query).map_err(failed)?;
        let rows = statement.query_map([], process_from).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    async fn runs(&self, sandbox: &SandboxId) -> Result<bool> {
        self.is_so(
            "SELECT EXISTS (SELECT 1 FROM processes WHERE sandbox = ?1 AND finished_at IS NULL)",
            [sandbox.as_str()],
        )
    }

    async fn each_ended(
        &self,
        tenants: Vec<TenantId>,
        mut see: Box<dyn FnMut(Ended) + Send>,
    ) -> Result<()> {
        let tenants = to_json(&tenants.iter().map(TenantId::as_str).collect::<Vec<_>>())?;
        self.beside(move |connection| {
            // There may be a million, and whoever sees them has work with each: so they are put aside, in a file of their own,
            // and nobody's reading keeps the state's log from being folded.
            connection.execute_batch(
                "CREATE TEMP TABLE ended (id TEXT NOT NULL, tenant TEXT NOT NULL, at INTEGER NOT NULL)",
            )?;
            connection.execute(
                "INSERT INTO ended SELECT id, tenant, finished_at FROM processes
                 WHERE finished_at IS NOT NULL AND tenant IN (SELECT value FROM json_each(?1))
                     AND coalesce(json_extract(exit, '$.log_end'), '') <> '[0,0]'
                 ORDER BY finished_at DESC, started_at DESC, id",
                [tenants],
            )?;
            let mut all = connection.prepare("SELECT id, tenant, at FROM ended ORDER BY rowid")?;
            let mut rows = all.query([])?;
            while let Some(row) = rows.next()? {
                see(Ended {
                    process: parsed(row, 0, ProcessId::parse)?,
                    tenant: parsed(row, 1, TenantId::parse)?,
                    at: row.get(2)?,
                });
            }
            Ok(())
        })
        .await
    }
}
