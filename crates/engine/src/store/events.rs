//! Events in the SQLite store.
//!
//! An event is added in the transaction of the change that it tells of, and whoever waits is woken after the commit. The
//! last event is never forgotten: the next number follows from it.

use std::collections::BTreeMap;

use belljar_policy::{ProcessId, SandboxId, TenantId};
use rusqlite::{OptionalExtension, Row, params};
use tokio::sync::watch;

use super::SqliteStore;
use super::listing::Conditions;
use super::record::{ExitRecord, ProcessStatus};
use super::rows::{invalid, parsed, unknown};
use super::sqlite::{Change, failed};
use crate::events::{Event, EventKind};
use crate::time::{from_ms, now_ms};
use crate::{Result, Scope};

pub(super) const COLUMNS: &str =
    "SELECT seq, at, tenant, sandbox, process, kind, detail FROM events";

/// Some events, and how far they reach: up to there nothing else is in scope.
#[derive(Clone, Debug)]
pub(crate) struct Batch {
    pub(crate) events: Vec<Event>,
    pub(crate) up_to: u64,
}

#[async_trait::async_trait]
pub(crate) trait EventStore: Send + Sync {
    /// At most `limit` events after `since`, oldest first.
    async fn events(&self, scope: &Scope, since: u64, limit: usize) -> Result<Batch>;

    /// The number of the newest event; zero where there has been none.
    fn last_event(&self) -> Result<u64>;

    /// Adds an event about a snapshot, which may have outlived the record of its sandbox.
    async fn tell_of_snapshot(
        &self,
        kind: EventKind,
        tenant: &TenantId,
        sandbox: &SandboxId,
        snapshot: &str,
        name: Option<&str>,
    ) -> Result<()>;

    /// Changes with every event that this process adds.
    fn changes(&self) -> watch::Receiver<u64>;
}

#[async_trait::async_trait]
impl EventStore for SqliteStore {
    async fn events(&self, scope: &Scope, since: u64, limit: usize) -> Result<Batch> {
        // What is added between both questions has a higher number than `last`.
        let last = self.last_event()?;
        if last <= since {
            return Ok(Batch { events: Vec::new(), up_to: since });
        }
        let mut conditions = Conditions::default();
        conditions.add("seq > ?", [i64::try_from(since).unwrap_or(i64::MAX).into()]);
        conditions.add_scope(scope, "sandbox");
        let (query, values) = conditions.finish(COLUMNS, "seq", limit);
        let connection = self.lock();
        let mut statement = connection.prepare_cached(&query).map_err(failed)?;
        let rows =
            statement.query_map(rusqlite::params_from_iter(values), event_from).map_err(failed)?;
        let events: Vec<Event> = rows.collect::<rusqlite::Result<_>>().map_err(failed)?;
        let newest = events.last().map_or(0, |event| event.seq);
        let up_to = if events.len() == limit { newest } else { newest.max(last) };
        Ok(Batch { events, up_to })
    }

    fn last_event(&self) -> Result<u64> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached("SELECT seq FROM events ORDER BY seq DESC LIMIT 1")
            .map_err(failed)?;
        let last: Option<i64> =
            statement.query_row([], |row| row.get(0)).optional().map_err(failed)?;
        Ok(last.unwrap_or(0).unsigned_abs())
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.watch()
    }

    async fn tell_of_snapshot(
        &self,
        kind: EventKind,
        tenant: &TenantId,
        sandbox: &SandboxId,
        snapshot: &str,
        name: Option<&str>,
    ) -> Result<()> {
        self.write(|change| {
            let detail: BTreeMap<_, _> = snapshot_detail(snapshot, name).collect();
            let detail = serde_json::to_string(&detail)
                .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
            change
                .prepare_cached(
                    "INSERT INTO events (at, tenant, sandbox, kind, detail) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![
                    now_ms(),
                    tenant.as_str(),
                    sandbox.as_str(),
                    kind.as_str(),
                    detail
                ])?;
            change.has_told();
            Ok(())
        })
        .map_err(failed)
    }
}

/// Adds an event about a sandbox.
pub(super) fn tell(
    change: &Change<'_>,
    id: &SandboxId,
    kind: EventKind,
    detail: &[(&str, &str)],
) -> rusqlite::Result<()> {
    insert(change, id, None, kind, detail.iter().copied().collect())
}

/// What an event about a snapshot says of it.
pub(super) fn snapshot_detail<'a>(
    id: &'a str,
    name: Option<&'a str>,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    [("snapshot", Some(id)), ("snapshot_name", name)]
        .into_iter()
        .filter_map(|(field, value)| Some((field, value?)))
}

/// Adds the event that a process runs.
pub(super) fn tell_start(
    change: &Change<'_>,
    sandbox: &SandboxId,
    process: &ProcessId,
) -> rusqlite::Result<()> {
    insert(change, sandbox, Some(process), EventKind::ProcessStarted, BTreeMap::new())
}

/// Adds the event that a process has ended.
pub(super) fn tell_end(
    change: &Change<'_>,
    sandbox: &SandboxId,
    process: &ProcessId,
    status: ProcessStatus,
    exit: Option<&ExitRecord>,
) -> rusqlite::Result<()> {
    let code = exit.and_then(|exit| exit.code).map(|code| code.to_string());
    let signal = exit.and_then(|exit| exit.signal).map(|signal| signal.to_string());
    let known = [
        ("status", Some(status.as_str())),
        ("reason", exit.map(|exit| exit.reason.as_str())),
        ("exit_code", code.as_deref()),
        ("signal", signal.as_deref()),
    ];
    let detail = known.into_iter().filter_map(|(name, value)| Some((name, value?))).collect();
    insert(change, sandbox, Some(process), EventKind::ProcessEnded, detail)
}

fn insert(
    change: &Change<'_>,
    sandbox: &SandboxId,
    process: Option<&ProcessId>,
    kind: EventKind,
    detail: BTreeMap<&str, &str>,
) -> rusqlite::Result<()> {
    let detail = serde_json::to_string(&detail)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    change
        .prepare_cached(
            "INSERT INTO events (at, tenant, sandbox, process, kind, detail)
             SELECT ?1, tenant, id, ?3, ?4,
                 CASE WHEN name IS NULL THEN ?5 ELSE json_insert(?5, '$.name', name) END
             FROM sandboxes WHERE id = ?2",
        )?
        .execute(params![
            now_ms(),
            sandbox.as_str(),
            process.map(ProcessId::as_str),
            kind.as_str(),
            detail
        ])?;
    change.has_told();
    Ok(())
}

/// Forgets events before a time, but never the last one.
pub(super) fn prune(change: &Change<'_>, before_ms: i64) -> rusqlite::Result<()> {
    change
        .prepare_cached("DELETE FROM events WHERE at < ?1 AND seq < (SELECT max(seq) FROM events)")?
        .execute([before_ms])
        .map(drop)
}

pub(super) fn event_from(row: &Row<'_>) -> rusqlite::Result<Event> {
    let process: Option<String> = row.get(4)?;
    Ok(Event {
        seq: row.get::<_, i64>(0)?.unsigned_abs(),
        at: from_ms(row.get(1)?),
        tenant: parsed(row, 2, TenantId::parse)?,
        sandbox: parsed(row, 3, SandboxId::parse)?,
        process: process
            .as_deref()
            .map(ProcessId::parse)
            .transpose()
            .map_err(|error| invalid(4, error))?,
        kind: parsed(row, 5, |text| EventKind::parse(text).ok_or_else(|| unknown(text)))?,
        detail: parsed(row, 6, |text| serde_json::from_str(text))?,
    })
}
