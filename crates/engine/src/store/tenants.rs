//! Tenants and their quotas in the SQLite store.
//!
//! A quota is checked in the transaction that takes from it, so two that come at the same time cannot both get the last
//! of it.

use belljar_codes::Code;
use belljar_policy::limits::{format_bytes, format_cpus};
use belljar_policy::{ProcessId, TenantId};
use rusqlite::{Connection, OptionalExtension, Row, params};

use super::SqliteStore;
use super::listing::Conditions;
use super::record::State;
use super::rows::{parsed, unknown};
use super::sqlite::{Change, Fault, failed, to_integer};
use crate::tenants::{Counts, Quotas, Tenant, TenantUsage, not_found};
use crate::time::{from_ms, now_ms};
use crate::{Error, Result, Scope};

const COLUMNS: &str =
    "SELECT name, created_at, sandboxes, memory_bytes, milli_cpus, disk_bytes, processes,
     requests_per_second FROM tenants";

#[async_trait::async_trait]
pub(crate) trait TenantStore: Send + Sync {
    /// `TenantExists` if there is one of that name.
    async fn add_tenant(&self, id: &TenantId, quotas: &Quotas) -> Result<Tenant>;

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>>;

    async fn tenants(&self) -> Result<Vec<Tenant>>;

    /// False if there is no such tenant.
    async fn set_quotas(&self, id: &TenantId, quotas: &Quotas) -> Result<bool>;

    /// Forgets a tenant that has no live sandboxes, and everything of it; returns its processes, whose logs may go.
    async fn remove_tenant(&self, id: &TenantId) -> Result<Vec<ProcessId>>;

    async fn usage(&self, id: &TenantId) -> Result<TenantUsage>;

    async fn counts(&self, scope: &Scope) -> Result<Counts>;
}

#[async_trait::async_trait]
impl TenantStore for SqliteStore {
    async fn add_tenant(&self, id: &TenantId, quotas: &Quotas) -> Result<Tenant> {
        let added = self.write(|change| {
            if find(change, id)?.is_some() {
                let message = format!("there is a tenant `{id}` already");
                return Err(Fault::Refused(Error::new(Code::TenantExists, message).with_remedy(
                    format!("choose another name, or change it with `belljar tenants set {id}`"),
                )));
            }
            change.execute(
                "INSERT INTO tenants (name, created_at) VALUES (?1, ?2)",
                params![id.as_str(), now_ms()],
            )?;
            set(change, id, quotas)?;
            Ok(find(change, id)?.ok_or_else(|| not_found(id)))
        });
        added?
    }

    async fn tenant(&self, id: &TenantId) -> Result<Option<Tenant>> {
        find(&self.lock(), id).map_err(failed)
    }

    async fn tenants(&self) -> Result<Vec<Tenant>> {
        let connection = self.lock();
        let mut statement =
            connection.prepare(&format!("{COLUMNS} ORDER BY name")).map_err(failed)?;
        let rows = statement.query_map([], tenant_from).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    async fn set_quotas(&self, id: &TenantId, quotas: &Quotas) -> Result<bool> {
        self.write(|change| set(change, id, quotas)).map_err(failed)
    }

    async fn remove_tenant(&self, id: &TenantId) -> Result<Vec<ProcessId>> {
        let removed = self.write(|change| {
            let name = id.as_str();
            if change.execute("DELETE FROM tenants WHERE name = ?1", [name])? == 0 {
                return Err(Fault::Refused(not_found(id)));
            }
            let live = usage(change, id)?.sandboxes;
            if live > 0 {
                return Err(Fault::Refused(
                    Error::new(Code::TenantInUse, format!("tenant `{id}` has {live} sandboxes"))
                        .with_remedy("destroy them first"),
                ));
            }
            for table in ["sandboxes", "idempotency", "keys", "webhooks", "policies", "secrets"] {
                change.execute(&format!("DELETE FROM {table} WHERE tenant = ?1"), [name])?;
            }
            // The last event stays for its number; a later tenant of the same name learns nothing from it.
            change.execute(
                "DELETE FROM events WHERE tenant = ?1 AND seq < (SELECT max(seq) FROM events)",
                [name],
            )?;
            change.execute("UPDATE events SET detail = '{}' WHERE tenant = ?1", [name])?;
            let processes = change
                .prepare_cached("DELETE FROM processes WHERE tenant = ?1 RETURNING id")?
                .query_map([name], |row| parsed(row, 0, ProcessId::parse))?
                .collect::<rusqlite::Result<_>>()?;
            Ok(processes)
        });
        Ok(removed?)
    }

    async fn usage(&self, id: &TenantId) -> Result<TenantUsage> {
        usage(&self.lock(), id).map_err(failed)
    }

    async fn counts(&self, scope: &Scope) -> Result<Counts> {
        let mut of_sandboxes = Conditions::default();
        of_sandboxes.add_scope(scope, "id");
        of_sandboxes.add("ended_at IS NULL", []);
        let (query, values) = of_sandboxes.all("SELECT state, count(*) FROM sandboxes");
        let connection = self.lock();
        let mut statement =
            connection.prepare(&format!("{query} GROUP BY state")).map_err(failed)?;
        let rows = statement
            .query_map(rusqlite::params_from_iter(values), |row| {
                let state = parsed(row, 0, |text| State::parse(text).ok_or_else(|| unknown(text)))?;
                Ok((state.into(), row.get::<_, i64>(1)?.unsigned_abs()))
            })
            .map_err(failed)?;
        let sandboxes = rows.collect::<rusqlite::Result<_>>().map_err(failed)?;
        let mut of_processes = Conditions::default();
        of_processes.add_scope(scope, "sandbox");
        of_processes.add("finished_at IS NULL", []);
        let (query, values) = of_processes.all("SELECT count(*) FROM processes");
        let processes: i64 = connection
            .query_row(&query, rusqlite::params_from_iter(values), |row| row.get(0))
            .map_err(failed)?;
        Ok(Counts { sandboxes, processes: processes.unsigned_abs() })
    }
}

/// Refuses the sandbox that was just added if its tenant may not have it.
pub(super) fn check_sandbox(change: &Change<'_>, id: &TenantId) -> Result<(), Fault> {
    let quotas = quotas(change, id)?;
    let Quotas { sandboxes, memory_bytes, milli_cpus, disk_bytes, .. } = quotas;
    if [sandboxes, memory_bytes, milli_cpus, disk_bytes] == [None; 4] {
        return Ok(());
    }
    let used = usage(change, id)?;
    let number = |number: u64| number.to_string();
    let cpus = |millis: u64| format_cpus(u32::try_from(millis).unwrap_or(u32::MAX));
    let shown: [(&str, _, _, &dyn Fn(u64) -> String); 4] = [
        ("sandboxes", sandboxes, used.sandboxes, &number),
        ("memory", memory_bytes, used.memory_bytes, &format_bytes),
        ("CPUs", milli_cpus, used.milli_cpus, &cpus),
        ("disk", disk_bytes, used.disk_bytes, &format_bytes),
    ];
    for (what, quota, used, show) in shown {
        check(id, what, quota, used, show)?;
    }
    Ok(())
}

/// Refuses the process that was just added if its tenant may not have it.
pub(super) fn check_process(change: &Change<'_>, id: &TenantId) -> Result<(), Fault> {
    match quotas(change, id)?.processes {
        None => Ok(()),
        quota => check(id, "processes", quota, running(change, id)?, &|number| number.to_string()),
    }
}

fn check(
    id: &TenantId,
    what: &str,
    quota: Option<u64>,
    used: u64,
    show: &dyn Fn(u64) -> String,
) -> Result<(), Fault> {
    match quota {
        Some(quota) if used > quota => Err(Fault::Refused(
            Error::new(
                Code::QuotaExceeded,
                format!(
                    "the quota of tenant `{id}` for {what} is {}, and this would make it {}",
                    show(quota),
                    show(used)
                ),
            )
            .with_remedy("end what is no longer needed, or have the quota raised"),
        )),
        _ => Ok(()),
    }
}

fn quotas(connection: &Connection, id: &TenantId) -> Result<Quotas, Fault> {
    match find(connection, id)? {
        Some(tenant) => Ok(tenant.quotas),
        None => Err(Fault::Refused(not_found(id))),
    }
}

fn find(connection: &Connection, id: &TenantId) -> rusqlite::Result<Option<Tenant>> {
    connection
        .prepare_cached(&format!("{COLUMNS} WHERE name = ?1"))?
        .query_row([id.as_str()], tenant_from)
        .optional()
}

fn usage(connection: &Connection, id: &TenantId) -> rusqlite::Result<TenantUsage> {
    let processes = running(connection, id)?;
    connection
        .prepare_cached(
            "SELECT count(*), total(memory_bytes), total(milli_cpus), total(disk_bytes)
             FROM sandboxes WHERE tenant = ?1 AND ended_at IS NULL",
        )?
        .query_row([id.as_str()], |row| {
            Ok(TenantUsage {
                sandboxes: row.get::<_, i64>(0)?.unsigned_abs(),
                // Sums as floating-point numbers: they cannot overflow, and are exact as far as it matters.
                memory_bytes: row.get::<_, f64>(1)? as u64,
                milli_cpus: row.get::<_, f64>(2)? as u64,
                disk_bytes: row.get::<_, f64>(3)? as u64,
                processes,
            })
        })
}

fn running(connection: &Connection, id: &TenantId) -> rusqlite::Result<u64> {
    connection
        .prepare_cached("SELECT count(*) FROM processes WHERE tenant = ?1 AND finished_at IS NULL")?
        .query_row([id.as_str()], |row| row.get::<_, i64>(0))
        .map(i64::unsigned_abs)
}

fn set(change: &Change<'_>, id: &TenantId, quotas: &Quotas) -> rusqlite::Result<bool> {
    let changed = change.execute(
        "UPDATE tenants SET sandboxes = ?2, memory_bytes = ?3, milli_cpus = ?4, disk_bytes = ?5,
         processes = ?6, requests_per_second = ?7 WHERE name = ?1",
        params![
            id.as_str(),
            quotas.sandboxes.map(to_integer),
            quotas.memory_bytes.map(to_integer),
            quotas.milli_cpus.map(to_integer),
            quotas.disk_bytes.map(to_integer),
            quotas.processes.map(to_integer),
            quotas.requests_per_second.map(to_integer),
        ],
    )?;
    Ok(changed == 1)
}

fn tenant_from(row: &Row<'_>) -> rusqlite::Result<Tenant> {
    let quota = |column| row.get::<_, Option<i64>>(column).map(|n| n.map(i64::unsigned_abs));
    Ok(Tenant {
        id: parsed(row, 0, TenantId::parse)?,
        created_at: from_ms(row.get(1)?),
        quotas: Quotas {
            sandboxes: quota(2)?,
            memory_bytes: quota(3)?,
            milli_cpus: quota(4)?,
            disk_bytes: quota(5)?,
            processes: quota(6)?,
            requests_per_second: quota(7)?,
        },
    })
}
