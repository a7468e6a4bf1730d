//! Ports of sandboxes that are shown to others, in the SQLite store.

use belljar_policy::SandboxId;
use rusqlite::{OptionalExtension, params};

use super::SqliteStore;
use super::sqlite::failed;
use crate::Result;
use crate::ports::ExposedPort;

#[async_trait::async_trait]
pub(crate) trait PortStore: Send + Sync {
    /// Shows a port, or changes to whom.
    async fn expose_port(&self, id: &SandboxId, port: ExposedPort) -> Result<()>;

    async fn exposed_port(&self, id: &SandboxId, port: u16) -> Result<Option<ExposedPort>>;

    /// In the order of their numbers.
    async fn exposed_ports(&self, id: &SandboxId) -> Result<Vec<ExposedPort>>;

    /// False: it was not shown.
    async fn hide_port(&self, id: &SandboxId, port: u16) -> Result<bool>;
}

#[async_trait::async_trait]
impl PortStore for SqliteStore {
    async fn expose_port(&self, id: &SandboxId, port: ExposedPort) -> Result<()> {
        self.write(|change| {
            change
                .prepare_cached(
                    "INSERT OR REPLACE INTO ports (sandbox, port, public) VALUES (?1, ?2, ?3)",
                )?
                .execute(params![id.as_str(), port.port, port.public])
                .map(drop)
        })
        .map_err(failed)
    }

    async fn exposed_port(&self, id: &SandboxId, port: u16) -> Result<Option<ExposedPort>> {
        self.lock()
            .prepare_cached("SELECT port, public FROM ports WHERE sandbox = ?1 AND port = ?2")
            .and_then(|mut statement| {
                statement.query_row(params![id.as_str(), port], port_from).optional()
            })
            .map_err(failed)
    }

    async fn exposed_ports(&self, id: &SandboxId) -> Result<Vec<ExposedPort>> {
        self.lock()
            .prepare_cached("SELECT port, public FROM ports WHERE sandbox = ?1 ORDER BY port")
            .and_then(|mut statement| statement.query_map([id.as_str()], port_from)?.collect())
            .map_err(failed)
    }

    async fn hide_port(&self, id: &SandboxId, port: u16) -> Result<bool> {
        self.write(|change| {
            change
                .prepare_cached("DELETE FROM ports WHERE sandbox = ?1 AND port = ?2")?
                .execute(params![id.as_str(), port])
        })
        .map(|removed| removed > 0)
        .map_err(failed)
    }
}

fn port_from(row: &rusqlite::Row<'_>) -> rusqlite::Result<ExposedPort> {
    Ok(ExposedPort { port: row.get(0)?, public: row.get(1)? })
}
