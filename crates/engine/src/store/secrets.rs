//! Sealed secrets in the SQLite store. What they say is not known here.

use belljar_policy::{SecretName, TenantId};
use rusqlite::{OptionalExtension, Row, params};

use super::SqliteStore;
use super::rows::parsed;
use super::sqlite::{Fault, failed};
use crate::Result;
use crate::secrets::SecretInfo;
use crate::tenants::not_found;
use crate::time::{from_ms, now_ms};

const COLUMNS: &str = "SELECT tenant, name, created_at, changed_at FROM secrets";

#[async_trait::async_trait]
pub(crate) trait SecretStore: Send + Sync {
    /// Puts a sealed value in the place of an earlier one.
    async fn set_secret(
        &self,
        tenant: &TenantId,
        name: &SecretName,
        sealed: &[u8],
    ) -> Result<SecretInfo>;

    /// The sealed value.
    async fn secret(&self, tenant: &TenantId, name: &SecretName) -> Result<Option<Vec<u8>>>;

    /// By tenant and name; `None`: of everybody.
    async fn secrets(&self, tenant: Option<&TenantId>) -> Result<Vec<SecretInfo>>;

    /// Whether there was one.
    async fn remove_secret(&self, tenant: &TenantId, name: &SecretName) -> Result<bool>;
}

#[async_trait::async_trait]
impl SecretStore for SqliteStore {
    async fn set_secret(
        &self,
        tenant: &TenantId,
        name: &SecretName,
        sealed: &[u8],
    ) -> Result<SecretInfo> {
        let set = self.write(|change| {
            let set = change.execute(
                "INSERT INTO secrets (tenant, name, sealed, created_at, changed_at)
                 SELECT ?1, ?2, ?3, ?4, ?4 WHERE EXISTS (SELECT 1 FROM tenants WHERE name = ?1)
                 ON CONFLICT (tenant, name) DO UPDATE
                 SET sealed = excluded.sealed, changed_at = excluded.changed_at",
                params![tenant.as_str(), name.as_str(), sealed, now_ms()],
            )?;
            if set == 0 {
                return Err(Fault::Refused(not_found(tenant)));
            }
            Ok(change
                .prepare_cached(&format!("{COLUMNS} WHERE tenant = ?1 AND name = ?2"))?
                .query_row([tenant.as_str(), name.as_str()], info_from)?)
        });
        Ok(set?)
    }

    async fn secret(&self, tenant: &TenantId, name: &SecretName) -> Result<Option<Vec<u8>>> {
        self.lock()
            .prepare_cached("SELECT sealed FROM secrets WHERE tenant = ?1 AND name = ?2")
            .and_then(|mut statement| {
                statement.query_row([tenant.as_str(), name.as_str()], |row| row.get(0)).optional()
            })
            .map_err(failed)
    }

    async fn secrets(&self, tenant: Option<&TenantId>) -> Result<Vec<SecretInfo>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached(&format!(
                "{COLUMNS} WHERE ?1 IS NULL OR tenant = ?1 ORDER BY tenant, name"
            ))
            .map_err(failed)?;
        let rows =
            statement.query_map([tenant.map(TenantId::as_str)], info_from).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    async fn remove_secret(&self, tenant: &TenantId, name: &SecretName) -> Result<bool> {
        self.write(|change| {
            change.execute(
                "DELETE FROM secrets WHERE tenant = ?1 AND name = ?2",
                [tenant.as_str(), name.as_str()],
            )
        })
        .map(|removed| removed > 0)
        .map_err(failed)
    }
}

fn info_from(row: &Row<'_>) -> rusqlite::Result<SecretInfo> {
    Ok(SecretInfo {
        tenant: parsed(row, 0, TenantId::parse)?,
        name: parsed(row, 1, SecretName::parse)?,
        created_at: from_ms(row.get(2)?),
        changed_at: from_ms(row.get(3)?),
    })
}
