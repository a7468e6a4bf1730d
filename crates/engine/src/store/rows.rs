//! Rows of the SQLite store as records. The order of columns is known here and nowhere else.

use belljar_policy::{ProcessId, SandboxId, TenantId};
use rusqlite::Row;

use super::record::{ProcessRecord, ProcessStatus, SandboxRecord, State};
use crate::Result;

/// The question to which [`sandbox_from`] reads the answer, up to its conditions.
macro_rules! sandbox_columns {
    () => {
        "SELECT id, name, backend, state, owner, worker, created_at, used_at, idle_ms, hard_ms, failure,
         details, tenant, hard_from
         FROM sandboxes"
    };
}

/// The question to which [`process_from`] reads the answer, up to its conditions.
macro_rules! process_columns {
    () => {
        "SELECT id, sandbox, status, attendant, command, pid, timeout_ms, started_at, finished_at, exit,
         tenant, details
         FROM processes"
    };
}

pub(super) use {process_columns, sandbox_columns};

pub(super) fn sandbox_from(row: &Row<'_>) -> rusqlite::Result<SandboxRecord> {
    let created_at = row.get(6)?;
    Ok(SandboxRecord {
        id: parsed(row, 0, SandboxId::parse)?,
        tenant: parsed(row, 12, TenantId::parse)?,
        name: row.get(1)?,
        backend: row.get(2)?,
        state: state(row, 3)?,
        owner: row.get(4)?,
        worker: row.get(5)?,
        created_at,
        used_at: row.get(7)?,
        idle_ms: row.get::<_, Option<i64>>(8)?.map(i64::unsigned_abs),
        hard_ms: row.get::<_, Option<i64>>(9)?.map(i64::unsigned_abs),
        hard_from: row.get::<_, Option<i64>>(13)?.unwrap_or(created_at),
        failure: row.get(10)?,
        details: parsed(row, 11, |text| serde_json::from_str(text))?,
    })
}

pub(super) fn process_from(row: &Row<'_>) -> rusqlite::Result<ProcessRecord> {
    let exit: Option<String> = row.get(9)?;
    Ok(ProcessRecord {
        id: parsed(row, 0, ProcessId::parse)?,
        sandbox: parsed(row, 1, SandboxId::parse)?,
        tenant: parsed(row, 10, TenantId::parse)?,
        status: parsed(row, 2, |text| ProcessStatus::parse(text).ok_or_else(|| unknown(text)))?,
        attendant: row.get(3)?,
        command: row.get(4)?,
        pid: row.get(5)?,
        timeout_ms: row.get::<_, Option<i64>>(6)?.map(i64::unsigned_abs),
        started_at: row.get(7)?,
        finished_at: row.get(8)?,
        exit: exit
            .map(|text| serde_json::from_str(&text))
            .transpose()
            .map_err(|error| invalid(9, error))?,
        details: parsed(row, 11, |text| serde_json::from_str(text))?,
    })
}

pub(super) fn state(row: &Row<'_>, column: usize) -> rusqlite::Result<State> {
    parsed(row, column, |text| State::parse(text).ok_or_else(|| unknown(text)))
}

pub(super) fn parsed<T, E>(
    row: &Row<'_>,
    column: usize,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> rusqlite::Result<T>
where
    E: std::error::Error + Send + Sync + 'static,
{
    let text: String = row.get(column)?;
    parse(&text).map_err(|error| invalid(column, error))
}

pub(super) fn invalid(
    column: usize,
    error: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, Box::new(error))
}

pub(super) fn unknown(word: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, format!("unknown word `{word}`"))
}
