//! Webhooks in the SQLite store, with how far each has been told.

use std::time::SystemTime;

use belljar_codes::Code;
use belljar_policy::TenantId;
use rusqlite::{OptionalExtension, Row, params};

use super::SqliteStore;
use super::events::{COLUMNS as EVENT_COLUMNS, EventStore, event_from};
use super::listing::Conditions;
use super::rows::{invalid, parsed, unknown};
use super::sqlite::{Fault, failed, to_integer};
use crate::events::{Event, EventKind};
use crate::secret::Secret;
use crate::tenants::not_found;
use crate::time::{from_ms, to_ms};
use crate::webhooks::Webhook;
use crate::{Error, Result};

const COLUMNS: &str =
    "SELECT id, tenant, url, secret, kinds, created_at, cursor, attempts, retry_at, error
     FROM webhooks";

/// Events that are not for a webhook are looked through again with the next question, unless there are this many.
const SKIP: u64 = 256;

/// What is kept of an error.
const MAX_ERROR: usize = 500;

#[async_trait::async_trait]
pub(crate) trait WebhookStore: Send + Sync {
    /// Adds a webhook whose first event is the next that happens; at most `most` for each tenant.
    async fn add_webhook(&self, webhook: &Webhook, most: u64) -> Result<Webhook>;

    async fn webhooks(&self) -> Result<Vec<Webhook>>;

    /// Those that may be tried now and have not been told of everything, oldest first.
    async fn webhooks_behind(&self, now: SystemTime) -> Result<Vec<Webhook>>;

    async fn any_webhook(&self) -> Result<bool>;

    async fn remove_webhook(&self, id: &str) -> Result<()>;

    /// The next event that the webhook asked for and has not been told of.
    async fn next_for(&self, webhook: &Webhook) -> Result<Option<Event>>;

    /// The webhook has been told of everything up to `seq`, or it was given up.
    async fn webhook_told(&self, id: &str, seq: u64, error: Option<&str>) -> Result<()>;

    async fn webhook_failed(&self, id: &str, error: &str, retry_at: SystemTime) -> Result<()>;
}

#[async_trait::async_trait]
impl WebhookStore for SqliteStore {
    async fn add_webhook(&self, webhook: &Webhook, most: u64) -> Result<Webhook> {
        let kinds: Vec<_> = webhook.events.iter().map(|kind| kind.as_str()).collect();
        let added = self.write(|change| {
            let added = change.execute(
                "INSERT INTO webhooks (id, tenant, url, secret, kinds, created_at, cursor)
                 SELECT ?1, ?2, ?3, ?4, ?5, ?6, (SELECT coalesce(max(seq), 0) FROM events)
                 WHERE ?2 IS NULL OR EXISTS (SELECT 1 FROM tenants WHERE name = ?2)",
                params![
                    webhook.id,
                    webhook.tenant.as_ref().map(TenantId::as_str),
                    webhook.url,
                    webhook.secret.expose(),
                    kinds.join(" "),
                    to_ms(webhook.created_at),
                ],
            )?;
            if added == 0 {
                let tenant = webhook.tenant.clone().unwrap_or_default();
                return Err(Fault::Refused(not_found(&tenant)));
            }
            let count: i64 = change
                .prepare_cached("SELECT count(*) FROM webhooks WHERE tenant IS ?1")?
                .query_row([webhook.tenant.as_ref().map(TenantId::as_str)], |row| row.get(0))?;
            if count.unsigned_abs() > most {
                return Err(Fault::Refused(too_many(webhook.tenant.as_ref(), most)));
            }
            Ok(change
                .prepare(&format!("{COLUMNS} WHERE id = ?1"))?
                .query_row([&webhook.id], webhook_from)?)
        });
        Ok(added?)
    }

    async fn webhooks(&self) -> Result<Vec<Webhook>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached(&format!("{COLUMNS} ORDER BY created_at, id"))
            .map_err(failed)?;
        let rows = statement.query_map([], webhook_from).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    async fn webhooks_behind(&self, now: SystemTime) -> Result<Vec<Webhook>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached(&format!(
                "{COLUMNS} WHERE (retry_at IS NULL OR retry_at <= ?1)
                 AND cursor < (SELECT coalesce(max(seq), 0) FROM events) ORDER BY created_at, id"
            ))
            .map_err(failed)?;
        let rows = statement.query_map([to_ms(now)], webhook_from).map_err(failed)?;
        rows.collect::<rusqlite::Result<_>>().map_err(failed)
    }

    async fn any_webhook(&self) -> Result<bool> {
        self.is_so("SELECT EXISTS (SELECT 1 FROM webhooks)", [])
    }

    async fn remove_webhook(&self, id: &str) -> Result<()> {
        self.write(|change| change.execute("DELETE FROM webhooks WHERE id = ?1", [id]))
            .map(drop)
            .map_err(failed)
    }

    async fn next_for(&self, webhook: &Webhook) -> Result<Option<Event>> {
        let last = self.last_event()?;
        if last <= webhook.cursor {
            return Ok(None);
        }
        let mut conditions = Conditions::default();
        conditions.add("seq > ?", [to_integer(webhook.cursor).into()]);
        if let Some(tenant) = &webhook.tenant {
            conditions.add_text("tenant = ?", tenant.as_str());
        }
        conditions.add_any("kind", webhook.events.iter().map(|kind| kind.as_str()));
        let (query, values) = conditions.finish(EVENT_COLUMNS, "seq", 1);
        let found = {
            let connection = self.lock();
            let mut statement = connection.prepare_cached(&query).map_err(failed)?;
            statement
                .query_row(rusqlite::params_from_iter(values), event_from)
                .optional()
                .map_err(failed)?
        };
        if found.is_none() && last - webhook.cursor >= SKIP {
            self.webhook_told(&webhook.id, last, webhook.error.as_deref()).await?;
        }
        Ok(found)
    }

    async fn webhook_told(&self, id: &str, seq: u64, error: Option<&str>) -> Result<()> {
        self.write(|change| {
            change.execute(
                "UPDATE webhooks SET cursor = ?2, attempts = 0, retry_at = NULL, error = ?3
                 WHERE id = ?1 AND cursor < ?2",
                params![id, to_integer(seq), error.map(shortened)],
            )
        })
        .map(drop)
        .map_err(failed)
    }

    async fn webhook_failed(&self, id: &str, error: &str, retry_at: SystemTime) -> Result<()> {
        self.write(|change| {
            change.execute(
                "UPDATE webhooks SET attempts = attempts + 1, retry_at = ?2, error = ?3 WHERE id = ?1",
                params![id, to_ms(retry_at), shortened(error)],
            )
        })
        .map(drop)
        .map_err(failed)
    }
}

fn too_many(tenant: Option<&TenantId>, most: u64) -> Error {
    let whose = tenant.map_or_else(|| "the operator".to_owned(), |id| format!("tenant `{id}`"));
    Error::new(Code::QuotaExceeded, format!("{whose} has {most} webhooks already"))
        .with_remedy("remove those that are not used, or let one be told of more")
}

fn shortened(error: &str) -> String {
    error.chars().take(MAX_ERROR).collect()
}

fn webhook_from(row: &Row<'_>) -> rusqlite::Result<Webhook> {
    let tenant: Option<String> = row.get(1)?;
    Ok(Webhook {
        id: row.get(0)?,
        tenant: tenant
            .as_deref()
            .map(TenantId::parse)
            .transpose()
            .map_err(|error| invalid(1, error))?,
        url: row.get(2)?,
        secret: Secret::new(row.get::<_, String>(3)?),
        events: parsed(row, 4, |text| {
            let words = text.split_ascii_whitespace();
            words.map(|word| EventKind::parse(word).ok_or_else(|| unknown(word))).collect()
        })?,
        created_at: from_ms(row.get(5)?),
        cursor: row.get::<_, i64>(6)?.unsigned_abs(),
        attempts: row.get(7)?,
        retry_at: row.get::<_, Option<i64>>(8)?.map(from_ms),
        error: row.get(9)?,
    })
}
