//! Sandboxes and their journal in the SQLite store.

use belljar_codes::Code;
use belljar_policy::{ProcessId, SandboxId, TenantId};
use rusqlite::{OptionalExtension, params};

use super::events::{snapshot_detail, tell, tell_end};
use super::listing::{Conditions, Listing, text};
use super::record::{Details, ProcessStatus, SandboxRecord, State};
use super::rows::{parsed, sandbox_columns, sandbox_from, state};
use super::sqlite::{Change, Fault, failed, to_integer, to_json};
use super::{
    Claimed, Documents, End, KeyClaim, SqliteStore, Step, Which, idempotency, policies, tenants,
};
use crate::events::EventKind;
use crate::query::SandboxQuery;
use crate::time::now_ms;
use crate::{Error, Result};

/// What came of reserving a sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reserved {
    New,
    /// The same request came before, with the same key.
    Known,
    /// The documents of its policy are not kept and were not given.
    Unwritten,
}

#[async_trait::async_trait]
pub(crate) trait SandboxStore: Send + Sync {
    /// Adds a sandbox that is about to be started, with its steps and the documents of its policy, unless the key is known or
    /// documents are missing. `SandboxExists` if a live one has its name, `TenantNotFound`, or `QuotaExceeded`.
    async fn reserve(
        &self,
        record: &SandboxRecord,
        key: Option<&KeyClaim>,
        layers: Option<&str>,
    ) -> Result<Reserved>;

    /// Notes that a step is about to happen.
    async fn journal(&self, id: &SandboxId, step: Step) -> Result<()>;

    /// Notes a step and what is known about the sandbox by now.
    async fn describe(&self, id: &SandboxId, step: Step, details: &Details) -> Result<()>;

    /// Notes what is known about a sandbox by now.
    async fn redescribe(&self, id: &SandboxId, details: &Details) -> Result<()>;

    /// Notes that the sandbox is ready, and what is known about it by now; whoever worked on it no longer does.
    async fn ready(&self, id: &SandboxId, details: &Details) -> Result<()>;

    /// Puts `worker` in the place of `seen` as the engine at work on the sandbox, notes the steps that it will take, and
    /// moves the sandbox to `state`; `reason` stays with it until it has ended. False, and nothing changed, if somebody
    /// was faster.
    async fn claim(
        &self,
        id: &SandboxId,
        seen: Option<&str>,
        worker: &str,
        steps: &[Step],
        state: Option<State>,
        reason: Option<&str>,
    ) -> Result<bool>;

    /// Takes `worker` away from the sandbox.
    async fn release(&self, id: &SandboxId, worker: &str) -> Result<()>;

    /// Ends the sandbox's life: its name is free, its journal is gone, processes that still ran are lost.
    async fn end(&self, id: &SandboxId, end: &End) -> Result<()>;

    /// The sandbox is paused; whoever worked on it no longer does.
    async fn paused(&self, id: &SandboxId) -> Result<()>;

    /// The sandbox runs again; whoever worked on it no longer does.
    async fn resumed(&self, id: &SandboxId) -> Result<()>;

    /// Sets both limits of the lease. The idle clock starts anew, the hard one started at `hard_from`.
    async fn set_lease(
        &self,
        id: &SandboxId,
        idle_ms: Option<u64>,
        hard_ms: Option<u64>,
        hard_from: i64,
    ) -> Result<()>;

    /// Moves the idle clock.
    async fn touch(&self, id: &SandboxId) -> Result<()>;

    /// Puts another owner in the place of the one that an ephemeral sandbox ends with.
    async fn own(&self, id: &SandboxId, owner: &str) -> Result<()>;

    /// All files of a snapshot are there: from now on the sandbox ends with nobody, and whoever listens is told.
    async fn filled(&self, id: &SandboxId, snapshot: &str, name: Option<&str>) -> Result<()>;

    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>>;

    async fn state_of(&self, id: &SandboxId) -> Result<Option<State>>;

    /// Whose a sandbox is.
    async fn tenant_of(&self, id: &SandboxId) -> Result<Option<TenantId>>;

    /// The live sandbox of that name.
    async fn sandbox_named(&self, tenant: &TenantId, name: &str) -> Result<Option<SandboxRecord>>;

    async fn sandboxes(&self, which: Which) -> Result<Vec<SandboxRecord>>;

    /// Oldest first; one more than the limit where there are more.
    async fn list(&self, listing: &Listing<'_, SandboxQuery>) -> Result<Vec<SandboxRecord>>;

    /// The steps in the sandbox's journal, oldest first.
    async fn steps(&self, id: &SandboxId) -> Result<Vec<String>>;

    /// Whether a command of `--ensure`, given by its hash, has succeeded in this sandbox.
    async fn is_ensured(&self, id: &SandboxId, hash: &str) -> Result<bool>;

    async fn mark_ensured(&self, id: &SandboxId, hash: &str) -> Result<()>;
}

#[async_trait::async_trait]
impl SandboxStore for SqliteStore {
    async fn reserve(
        &self,
        record: &SandboxRecord,
        key: Option<&KeyClaim>,
        layers: Option<&str>,
    ) -> Result<Reserved> {
        let details = to_json(&record.details)?;
        let limits = &record.details.limits;
        let digest = record.details.policy.as_ref().map(|policy| policy.digest.as_str());
        let inserted = self.write(|change| {
            if let (Some(digest), None) = (digest, layers)
                && !policies::are_kept(change, digest)?
            {
                return Ok(Reserved::Unwritten);
            }
            let claimed = idempotency::claim(change, &record.tenant, key, record.id.as_str())?;
            if claimed != Claimed::New {
                return Ok(Reserved::Known);
            }
            change
                .prepare_cached(
                    "INSERT INTO sandboxes (id, name, backend, state, owner, worker, created_at, used_at, idle_ms,
                     hard_ms, failure, details, tenant, hard_from, memory_bytes, milli_cpus, disk_bytes, policy)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18)",
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
                    record.tenant.as_str(),
                    record.hard_from,
                    to_integer(limits.memory_bytes.value),
                    limits.cpu_millis.value,
                    to_integer(limits.disk_bytes.value),
                    digest,
                ])?;
            // Afterwards, so that a name that is taken is told first.
            tenants::check_sandbox(change, &record.tenant)?;
            if let (Some(digest), Some(layers)) = (digest, layers) {
                policies::keep(change, &record.tenant, Documents { digest, layers })?;
            }
            // All that creating does, before any of it is done.
            for step in [Step::Reserved, Step::Starting, Step::Configuring] {
                note(change, &record.id, step)?;
            }
            let detail = [("backend", &*record.backend), ("template", &*record.details.template)];
            tell(change, &record.id, EventKind::SandboxCreated, &detail)?;
            Ok(Reserved::New)
        });
        match inserted {
            Err(Fault::Database(rusqlite::Error::SqliteFailure(error, _)))
                if error.code == rusqlite::ErrorCode::ConstraintViolation =>
            {
                let name = record.name.as_deref().unwrap_or_else(|| record.id.as_str());
                Err(Error::new(Code::SandboxExists, format!("there is a sandbox `{name}` already"))
                    .with_remedy(format!("choose another name, or `belljar destroy {name}` first")))
            }
            other => Ok(other?),
        }
    }

    async fn journal(&self, id: &SandboxId, step: Step) -> Result<()> {
        self.write(|change| note(change, id, step)).map_err(failed)
    }

    async fn describe(&self, id: &SandboxId, step: Step, details: &Details) -> Result<()> {
        let details = to_json(details)?;
        self.write(|change| {
            change
                .prepare_cached("UPDATE sandboxes SET details = ?2 WHERE id = ?1")?
                .execute(params![id.as_str(), details])?;
            note(change, id, step)
        })
        .map_err(failed)
    }

    async fn redescribe(&self, id: &SandboxId, details: &Details) -> Result<()> {
        let details = to_json(details)?;
        self.write(|change| {
            change
                .prepare_cached("UPDATE sandboxes SET details = ?2 WHERE id = ?1")?
                .execute(params![id.as_str(), details])
                .map(drop)
        })
        .map_err(failed)
    }

    async fn ready(&self, id: &SandboxId, details: &Details) -> Result<()> {
        let details = to_json(details)?;
        self.write(|change| {
            change
                .prepare_cached(
                    "UPDATE sandboxes SET state = 'ready', used_at = ?2, worker = NULL,
                     details = ?3
                     WHERE id = ?1",
                )?
                .execute(params![id.as_str(), now_ms(), details])?;
            note(change, id, Step::Ready)?;
            tell(change, id, EventKind::SandboxReady, &[])
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
        reason: Option<&str>,
    ) -> Result<bool> {
        self.write(|change| {
            let changed = change
                .prepare_cached(
                    "UPDATE sandboxes SET worker = ?3, state = coalesce(?4, state),
                     failure = coalesce(?5, failure)
                     WHERE id = ?1 AND worker IS ?2 AND ended_at IS NULL",
                )?
                .execute(params![id.as_str(), seen, worker, state.map(State::as_str), reason])?;
            if changed == 1 {
                steps.iter().try_for_each(|step| note(change, id, *step))?;
            }
            Ok(changed == 1)
        })
        .map_err(failed)
    }

    async fn release(&self, id: &SandboxId, worker: &str) -> Result<()> {
        self.write(|change| {
            change
                .prepare_cached("UPDATE sandboxes SET worker = NULL WHERE id = ?1 AND worker = ?2")?
                .execute([id.as_str(), worker])
        })
        .map(drop)
        .map_err(failed)
    }

    async fn end(&self, id: &SandboxId, end: &End) -> Result<()> {
        let (state, reason, kind) = match end {
            End::Destroyed(reason) => {
                (State::Destroyed, reason.as_deref(), EventKind::SandboxDestroyed)
            }
            End::Failed(reason) => (State::Failed, Some(reason.as_str()), EventKind::SandboxFailed),
        };
        let now = now_ms();
        self.write(|change| {
            let ended = change
                .prepare_cached(
                    "UPDATE sandboxes SET state = ?2, failure = coalesce(?3, failure), ended_at = ?4,
                     worker = NULL
                     WHERE id = ?1 AND ended_at IS NULL",
                )?
                .execute(params![id.as_str(), state.as_str(), reason, now])?;
            change
                .prepare_cached("DELETE FROM journal WHERE sandbox = ?1")?
                .execute([id.as_str()])?;
            change
                .prepare_cached("DELETE FROM ensured WHERE sandbox = ?1")?
                .execute([id.as_str()])?;
            change.prepare_cached("DELETE FROM ports WHERE sandbox = ?1")?.execute([id.as_str()])?;
            let lost: Vec<ProcessId> = change
                .prepare_cached(
                    "UPDATE processes SET status = 'lost', finished_at = ?2
                     WHERE sandbox = ?1 AND finished_at IS NULL RETURNING id",
                )?
                .query_map(params![id.as_str(), now], |row| parsed(row, 0, ProcessId::parse))?
                .collect::<rusqlite::Result<_>>()?;
            for process in &lost {
                tell_end(change, id, process, ProcessStatus::Lost, None)?;
            }
            if ended == 0 {
                return Ok(());
            }
            if state == State::Failed {
                idempotency::give_back(change, id.as_str())?;
            }
            let detail = reason.map(|reason| ("reason", reason));
            tell(change, id, kind, detail.as_slice())
        })
        .map_err(failed)
    }

    async fn paused(&self, id: &SandboxId) -> Result<()> {
        self.write(|change| {
            rest_in(change, id, State::Paused)?;
            tell(change, id, EventKind::SandboxPaused, &[])
        })
        .map_err(failed)
    }

    async fn resumed(&self, id: &SandboxId) -> Result<()> {
        self.write(|change| {
            rest_in(change, id, State::Ready)?;
            touch(change, id)?;
            tell(change, id, EventKind::SandboxResumed, &[])
        })
        .map_err(failed)
    }

    async fn set_lease(
        &self,
        id: &SandboxId,
        idle_ms: Option<u64>,
        hard_ms: Option<u64>,
        hard_from: i64,
    ) -> Result<()> {
        self.write(|change| {
            change
                .prepare_cached(
                    "UPDATE sandboxes SET idle_ms = ?2, hard_ms = ?3, hard_from = ?4 WHERE id = ?1",
                )?
                .execute(params![
                    id.as_str(),
                    idle_ms.map(to_integer),
                    hard_ms.map(to_integer),
                    hard_from
                ])?;
            touch(change, id)?;
            tell(change, id, EventKind::SandboxExtended, &[])
        })
        .map_err(failed)
    }

    async fn touch(&self, id: &SandboxId) -> Result<()> {
        self.write(|change| touch(change, id)).map_err(failed)
    }

    async fn own(&self, id: &SandboxId, owner: &str) -> Result<()> {
        self.write(|change| {
            change
                .prepare_cached(
                    "UPDATE sandboxes SET owner = ?2 WHERE id = ?1 AND owner IS NOT NULL",
                )?
                .execute([id.as_str(), owner])
                .map(drop)
        })
        .map_err(failed)
    }

    async fn filled(&self, id: &SandboxId, snapshot: &str, name: Option<&str>) -> Result<()> {
        self.write(|change| {
            change
                .prepare_cached("UPDATE sandboxes SET owner = NULL WHERE id = ?1")?
                .execute([id.as_str()])?;
            let detail: Vec<_> = snapshot_detail(snapshot, name).collect();
            tell(change, id, EventKind::SnapshotRestored, &detail)
        })
        .map_err(failed)
    }

    async fn sandbox(&self, id: &SandboxId) -> Result<Option<SandboxRecord>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached(concat!(sandbox_columns!(), " WHERE id = ?1"))
            .map_err(failed)?;
        statement.query_row([id.as_str()], sandbox_from).optional().map_err(failed)
    }

    async fn state_of(&self, id: &SandboxId) -> Result<Option<State>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached("SELECT state FROM sandboxes WHERE id = ?1")
            .map_err(failed)?;
        let found = statement.query_row([id.as_str()], |row| state(row, 0));
        found.optional().map_err(failed)
    }

    async fn tenant_of(&self, id: &SandboxId) -> Result<Option<TenantId>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached("SELECT tenant FROM sandboxes WHERE id = ?1")
            .map_err(failed)?;
        let tenant = statement.query_row([id.as_str()], |row| parsed(row, 0, TenantId::parse));
        tenant.optional().map_err(failed)
    }

    async fn sandbox_named(&self, tenant: &TenantId, name: &str) -> Result<Option<SandboxRecord>> {
        let connection = self.lock();
        let mut statement = connection
            .prepare_cached(concat!(
                sandbox_columns!(),
                " WHERE tenant = ?1 AND name = ?2 AND state IN ('creating', 'ready', 'paused')"
            ))
            .map_err(failed)?;
        statement.query_row([tenant.as_str(), name], sandbox_from).optional().map_err(failed)
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

    async fn list(&self, listing: &Listing<'_, SandboxQuery>) -> Result<Vec<SandboxRecord>> {
        let query = listing.query;
        let mut conditions = Conditions::default();
        conditions.add_scope(listing.scope, "id");
        if query.states.is_empty() {
            conditions.add("ended_at IS NULL", []);
        } else {
            conditions.add_any("state", query.states.iter().map(|state| state.as_str()));
        }
        if let Some(prefix) = &query.name_prefix {
            let both = [text(prefix), text(prefix)];
            conditions.add("substr(name, 1, length(?)) = ?", both);
        }
        for (place, pairs) in [("labels", &query.labels), ("metadata", &query.metadata)] {
            let condition = format!(
                "EXISTS (SELECT 1 FROM json_each(details, '$.{place}') AS pair
                 WHERE pair.key = ? AND pair.value = ?)"
            );
            for (key, value) in pairs {
                conditions.add(&condition, [text(key), text(value)]);
            }
        }
        if let Some(after) = &listing.after {
            conditions.add("(created_at, id) > (?, ?)", [after.at.into(), text(&after.id)]);
        }
        let (query, values) =
            conditions.finish(sandbox_columns!(), "created_at, id", listing.limit + 1);
        let connection = self.lock();
        let mut statement = connection.prepare(&query).map_err(failed)?;
        let rows = statement
            .query_map(rusqlite::params_from_iter(values), sandbox_from)
            .map_err(failed)?;
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
        self.write(|change| {
            change
                .prepare_cached("INSERT OR IGNORE INTO ensured (sandbox, hash) VALUES (?1, ?2)")?
                .execute([id.as_str(), hash])
        })
        .map(drop)
        .map_err(failed)
    }
}

fn note(change: &Change<'_>, id: &SandboxId, step: Step) -> rusqlite::Result<()> {
    change
        .prepare_cached(
            "INSERT INTO journal (sandbox, seq, step, at) VALUES (?1,
             (SELECT coalesce(max(seq), 0) + 1 FROM journal WHERE sandbox = ?1), ?2, ?3)",
        )?
        .execute(params![id.as_str(), step.as_str(), now_ms()])
        .map(drop)
}

/// Moves the idle clock. Commands that follow each other closely move it once: a row that is written costs a page of the log.
pub(super) fn touch(change: &Change<'_>, id: &SandboxId) -> rusqlite::Result<()> {
    change
        .prepare_cached(
            "UPDATE sandboxes SET used_at = ?2 WHERE id = ?1 AND abs(?2 - used_at) > 100",
        )?
        .execute(params![id.as_str(), now_ms()])
        .map(drop)
}

/// Notes that a sandbox is in use, if it can be.
pub(super) fn occupy(change: &Change<'_>, id: &SandboxId) -> Result<(), Fault> {
    let found = change
        .prepare_cached("SELECT state FROM sandboxes WHERE id = ?1")?
        .query_row([id.as_str()], |row| state(row, 0))
        .optional()?;
    check_usable(id, found).map_err(Fault::Refused)?;
    Ok(touch(change, id)?)
}

/// Whether commands may run in a sandbox of that state.
pub(crate) fn check_usable(id: &SandboxId, state: Option<State>) -> Result<()> {
    match state {
        Some(State::Creating | State::Ready) => Ok(()),
        Some(State::Paused) => Err(Error::sandbox_not_ready(id.as_str(), State::Paused)),
        _ => Err(Error::sandbox_gone(id.as_str())),
    }
}

/// Moves a sandbox to a state in which nobody is at work on it.
fn rest_in(change: &Change<'_>, id: &SandboxId, state: State) -> rusqlite::Result<()> {
    change
        .prepare_cached(
            "UPDATE sandboxes SET state = ?2, worker = NULL WHERE id = ?1 AND ended_at IS NULL",
        )?
        .execute([id.as_str(), state.as_str()])
        .map(drop)
}
