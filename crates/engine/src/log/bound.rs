//! How much the logs of processes that have ended may take.
//!
//! A log is kept for as long as its process is remembered, and a tenant may run any number of processes meanwhile. So
//! beyond a bound its oldest logs go before their time; that the process ran and how it ended stays known. The log of a
//! process that runs is bounded by itself, and the newest that has ended is always kept.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use belljar_policy::TenantId;
use tokio::task::JoinHandle;

use crate::Result;
use crate::engine::Inner;
use crate::state_dir::StateDirectory;
use crate::store::{Ended, Store};
use crate::time::now_ms;

/// For a tenant that has no quota for disk.
const DEFAULT_BYTES: u64 = 16 << 30;

/// The logs of all tenants are looked at this often, and those of one tenant whenever it has written so much more: looking
/// means to go through the records of all processes, of whichever tenant, though beside everybody else's work.
const INTERVAL_MS: i64 = 3_600_000;
const LOOK_AFTER: u64 = 1 << 30;

/// Whoever reads the output of a process to its end has this long for it, unless [`LOOK_AFTER`] more is written meanwhile than
/// there may be.
const SPARED: Duration = Duration::from_secs(5 * 60);

/// What each tenant has written since its logs were looked at, and who is looked at again in any case.
#[derive(Debug, Default)]
pub(crate) struct Written {
    tenants: Mutex<Tenants>,
    /// Logs are being looked at.
    looking: AtomicBool,
}

#[derive(Debug, Default)]
struct Tenants {
    /// Looking at all of them failed.
    all_are_due: bool,
    each: HashMap<TenantId, Since>,
}

/// Since the logs of a tenant were looked at.
#[derive(Debug, Default)]
struct Since {
    written: u64,
    again_at: Option<Instant>,
}

/// Whose logs are to be looked at.
#[derive(Debug, PartialEq)]
enum Due {
    Everybody,
    These(HashSet<TenantId>),
}

impl Written {
    pub(crate) fn add(&self, tenant: &TenantId, bytes: u64) {
        if bytes > 0 {
            self.change(tenant, |since| since.written = since.written.saturating_add(bytes));
        }
    }

    /// However little it writes until then.
    fn look_again(&self, tenant: &TenantId, at: Instant) {
        self.change(tenant, |since| {
            since.again_at = Some(since.again_at.map_or(at, |known| known.min(at)));
        });
    }

    /// Who is due begins anew.
    fn due(&self, now: Instant, everybody: bool) -> Due {
        let mut tenants = self.lock();
        if std::mem::take(&mut tenants.all_are_due) || everybody {
            tenants.each.clear();
            Due::Everybody
        } else {
            let due = tenants.each.extract_if(|_, since| {
                since.written >= LOOK_AFTER || since.again_at.is_some_and(|at| at <= now)
            });
            Due::These(due.map(|(tenant, _)| tenant).collect())
        }
    }

    /// Those who were due are so again.
    fn give_back(&self, due: &Due) {
        match due {
            Due::Everybody => self.lock().all_are_due = true,
            Due::These(tenants) => {
                tenants.iter().for_each(|tenant| self.look_again(tenant, Instant::now()));
            }
        }
    }

    fn change(&self, tenant: &TenantId, change: impl FnOnce(&mut Since)) {
        let each = &mut self.lock().each;
        match each.get_mut(tenant) {
            Some(since) => change(since),
            None => change(each.entry(tenant.clone()).or_default()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tenants> {
        self.tenants.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Due {
    fn has(&self, tenant: &TenantId) -> bool {
        match self {
            Self::Everybody => true,
            Self::These(tenants) => tenants.contains(tenant),
        }
    }

    fn is_nobody(&self) -> bool {
        matches!(self, Self::These(tenants) if tenants.is_empty())
    }
}

/// Looks at the logs of tenants for which it is time, one look after the other. That may take long, so nobody has to wait for
/// it, nor does the engine when it closes. `None`: there is a look already.
pub(crate) fn bound_logs(inner: &Inner) -> Option<JoinHandle<Result<()>>> {
    let look = Look::begin(inner)?;
    Some(tokio::spawn(async move {
        let looked = look.at_who_is_due().await;
        if let Err(error) = &looked {
            tracing::warn!(%error, "logs were not looked at; the next turn tries again");
        }
        looked
    }))
}

/// All that looking needs. It has an end of its own, so it does not hold on to the engine.
struct Look {
    store: Arc<dyn Store>,
    directory: StateDirectory,
    written: Arc<Written>,
}

impl Look {
    fn begin(inner: &Inner) -> Option<Self> {
        let written = Arc::clone(&inner.written);
        if written.looking.swap(true, Ordering::Relaxed) {
            return None;
        }
        let (store, directory) = (Arc::clone(&inner.store), inner.directory.clone());
        Some(Self { store, directory, written })
    }

    async fn at_who_is_due(&self) -> Result<()> {
        let everybody = self.store.claim_turn("logs", INTERVAL_MS).await?;
        let due = self.written.due(Instant::now(), everybody);
        if due.is_nobody() {
            return Ok(());
        }
        let looked = self.at(&due).await;
        if looked.is_err() {
            self.written.give_back(&due);
        }
        looked
    }

    async fn at(&self, due: &Due) -> Result<()> {
        let tenants = self.store.tenants().await?.into_iter().filter(|tenant| due.has(&tenant.id));
        let mut logs: HashMap<TenantId, Logs> = tenants
            .map(|tenant| {
                let most = tenant.quotas.disk_bytes.unwrap_or(DEFAULT_BYTES);
                (tenant.id.clone(), Logs::new(tenant.id, most))
            })
            .collect();
        let due = logs.keys().cloned().collect();
        let directory = self.directory.clone();
        let spared_since = now_ms() - i64::try_from(SPARED.as_millis()).unwrap_or(i64::MAX);
        let (written, spared_until) = (Arc::clone(&self.written), Instant::now() + SPARED);
        let see = move |ended: Ended| {
            if let Some(logs) = logs.get_mut(&ended.tenant)
                && logs.see(&directory.process(&ended.process), ended.at > spared_since)
            {
                written.look_again(&ended.tenant, spared_until);
            }
        };
        self.store.each_ended(due, Box::new(see)).await
    }
}

impl Drop for Look {
    fn drop(&mut self) {
        self.written.looking.store(false, Ordering::Relaxed);
    }
}

/// The logs of one tenant, as they are looked at, newest first.
struct Logs {
    tenant: TenantId,
    most: u64,
    taken: u64,
    removed: usize,
}

impl Logs {
    const fn new(tenant: TenantId, most: u64) -> Self {
        Self { tenant, most, taken: 0, removed: 0 }
    }

    /// Removes the log if there is too much by now. Whether it stays only because it is spared.
    fn see(&mut self, log: &Path, spared: bool) -> bool {
        let Some(size) = size(log) else { return false };
        let first = self.taken == 0;
        self.taken = self.taken.saturating_add(size);
        if self.taken <= self.most || first {
            return false;
        }
        if spared && self.taken <= self.most.saturating_add(LOOK_AFTER) {
            return true;
        }
        match fs::remove_dir_all(log) {
            Ok(()) => self.removed += 1,
            Err(error) => tracing::debug!(%error, path = %log.display(), "a log stays"),
        }
        false
    }
}

/// All were looked at.
impl Drop for Logs {
    fn drop(&mut self) {
        let Self { tenant, removed, .. } = self;
        if *removed > 0 {
            tracing::info!(%tenant, removed, "logs were removed before their time: too many");
        }
    }
}

/// `None` where there is no log, or none any more.
fn size(log: &Path) -> Option<u64> {
    let sum = || -> io::Result<u64> {
        fs::read_dir(log)?.map(|entry| Ok(entry?.metadata()?.len())).sum()
    };
    sum().ok().filter(|size| *size > 0)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use belljar_policy::ProcessId;
    use rusqlite::{Connection, params};

    use super::*;
    use crate::{Engine, EngineOptions, Quotas, recovery};

    fn id(tenant: &str) -> TenantId {
        TenantId::parse(tenant).unwrap()
    }

    fn these(tenant: &TenantId) -> Due {
        Due::These([tenant.clone()].into())
    }

    #[test]
    fn who_has_written_much_is_looked_at_once() {
        let written = Written::default();
        let (one, two, now) = (id("one"), id("two"), Instant::now());
        written.add(&one, LOOK_AFTER / 2);
        written.add(&two, LOOK_AFTER - 1);
        assert!(written.due(now, false).is_nobody());
        written.add(&one, LOOK_AFTER / 2);
        assert_eq!(written.due(now, false), these(&one));
        assert!(written.due(now, false).is_nobody());
        written.add(&two, 1);
        assert_eq!(written.due(now, false), these(&two));
        // However little it has written, where somebody said so; whatever was said later.
        written.add(&one, 1);
        written.look_again(&one, now + SPARED);
        written.look_again(&one, now + 2 * SPARED);
        assert!(written.due(now + SPARED / 2, false).is_nobody());
        assert_eq!(written.due(now + SPARED, false), these(&one));
        assert!(written.due(now + 2 * SPARED, false).is_nobody());
        // Also where all were.
        written.add(&two, LOOK_AFTER);
        assert_eq!(written.due(now, true), Due::Everybody);
        assert!(written.due(now, false).is_nobody());
    }

    fn look(inner: &Inner) -> Look {
        Look::begin(inner).expect("nobody looks")
    }

    async fn looked(inner: &Inner) -> Result<()> {
        bound_logs(inner).expect("nobody looks").await.unwrap()
    }

    #[tokio::test]
    async fn what_could_not_be_looked_at_is_looked_at_again_and_holds_up_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let options =
            EngineOptions { attend: true, ..EngineOptions::new(directory.path(), Vec::new()) };
        let inner = Engine::open_alone(options).await.unwrap();
        looked(&inner).await.unwrap();
        // Only whoever looks for ended processes reads what they ended with.
        let database = Connection::open(inner.directory.database()).unwrap();
        let broken = "INSERT INTO processes (id, sandbox, status, attendant, command, started_at, finished_at, exit)
                      VALUES ('n001abcdefgh', 'n001abcdefgh', 'succeeded', '', '', ?1, ?1, '{')";
        database.execute(broken, [now_ms()]).unwrap();
        let default = TenantId::default();
        inner.written.add(&default, LOOK_AFTER);
        looked(&inner).await.unwrap_err();
        assert_eq!(inner.written.due(Instant::now(), false), these(&default));
        inner.written.add(&default, LOOK_AFTER);
        recovery::sweep(&inner).await.unwrap();
        assert!(bound_logs(&inner).is_none(), "there is a look, for which nobody waits");
        while inner.written.looking.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        assert_eq!(inner.written.due(Instant::now(), false), these(&default), "it was tried");
        // The hourly look is not over with having been due, either.
        database.execute("DELETE FROM meta WHERE key = 'turn.logs'", []).unwrap();
        looked(&inner).await.unwrap_err();
        looked(&inner).await.unwrap_err();
        database.execute("DELETE FROM processes", []).unwrap();
        looked(&inner).await.unwrap();
        assert!(inner.written.due(Instant::now(), false).is_nobody());
    }

    #[tokio::test]
    async fn what_is_spared_is_looked_at_again_when_it_no_longer_is() {
        let directory = tempfile::tempdir().unwrap();
        let options = EngineOptions::new(directory.path(), Vec::new());
        let inner = Engine::open_alone(options).await.unwrap();
        let database = Connection::open(inner.directory.database()).unwrap();
        let (default, now) = (TenantId::default(), Instant::now());
        let logs = ["p001abcdefga", "p001abcdefgb"].map(|process| {
            let ended = "INSERT INTO processes (id, sandbox, status, attendant, command, started_at, finished_at)
                         VALUES (?1, ?1, 'succeeded', '', '', ?2, ?2)";
            database.execute(ended, params![process, now_ms()]).unwrap();
            let log = inner.directory.process(&ProcessId::parse(process).unwrap());
            fs::create_dir_all(&log).unwrap();
            fs::write(log.join("log.0"), "0123456789").unwrap();
            log
        });
        let left = || logs.iter().filter(|log| log.exists()).count();
        looked(&inner).await.unwrap();
        assert!(inner.written.due(now + 2 * SPARED, false).is_nobody(), "there is room");
        let quotas = Quotas { disk_bytes: Some(15), ..Quotas::default() };
        inner.store.set_quotas(&default, &quotas).await.unwrap();
        look(&inner).at(&these(&default)).await.unwrap();
        assert_eq!(left(), 2);
        assert!(inner.written.due(now + SPARED / 2, false).is_nobody());
        let due = inner.written.due(now + 2 * SPARED, false);
        assert_eq!(due, these(&default));
        let before = "UPDATE processes SET finished_at = finished_at - 300000";
        database.execute(before, []).unwrap();
        look(&inner).at(&due).await.unwrap();
        assert_eq!(left(), 1);
        assert!(inner.written.due(now + 2 * SPARED, false).is_nobody());
    }

    #[test]
    fn the_oldest_go_and_the_newest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let check = |sizes: &[u64], most: u64, spared: usize, kept: &[usize]| {
            let logs: Vec<_> =
                (0..sizes.len()).map(|n| directory.path().join(n.to_string())).collect();
            for (log, size) in logs.iter().zip(sizes) {
                let _ = fs::remove_dir_all(log);
                if *size > 0 {
                    fs::create_dir(log).unwrap();
                    for (name, size) in [("log.0", size / 2), ("log.1", size - size / 2)] {
                        File::create(log.join(name)).unwrap().set_len(size).unwrap();
                    }
                }
            }
            let removed = || {
                let mut seen = Logs::new(id("one"), most);
                for (number, log) in logs.iter().enumerate() {
                    seen.see(log, number < spared);
                }
                seen.removed
            };
            let there = sizes.iter().filter(|size| **size > 0).count();
            assert_eq!(removed(), there - kept.len());
            let left: Vec<_> = (0..logs.len()).filter(|number| logs[*number].exists()).collect();
            assert_eq!(left, kept, "{sizes:?} in {most}");
            assert_eq!(removed(), 0);
        };
        check(&[], 10, 0, &[]);
        check(&[10, 10, 10], 30, 0, &[0, 1, 2]);
        check(&[10, 10, 10], 29, 0, &[0, 1]);
        check(&[10, 0, 10, 10], 20, 0, &[0, 2]);
        check(&[10, 10], 5, 0, &[0]);
        check(&[10, 30, 1], 20, 0, &[0]);
        // Somebody may be reading those that ended just now.
        check(&[10, 10, 10], 15, 2, &[0, 1]);
        check(&[10, 10, 10], 15, 3, &[0, 1, 2]);
        // But not for whatever is written.
        check(&[10, LOOK_AFTER, 5, 10, 1], 15, 5, &[0, 1, 2]);
        check(&[LOOK_AFTER + 16, 10], 15, 2, &[0]);
    }
}
