//! How much the logs of processes that have ended may take.
//!
//! A log is kept for as long as its process is remembered, and a tenant may run any number of processes meanwhile. So
//! beyond a bound its oldest logs go before their time; that the process ran and how it ended stays known. The log of a
//! process that runs is bounded by itself, and the newest that has ended is always kept.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_policy::TenantId;

use crate::Result;
use crate::engine::Inner;
use crate::store::Ended;
use crate::time::now_ms;

/// For a tenant that has no quota for disk.
const DEFAULT_BYTES: u64 = 16 << 30;

/// The logs of all tenants are looked at this often, and those of one tenant whenever it has written so much more: looking
/// means to go through the records of all processes, of whichever tenant, though beside everybody else's work.
const INTERVAL_MS: i64 = 3_600_000;
const LOOK_AFTER: u64 = 1 << 30;

/// Whoever reads the output of a process to its end has this long for it, whatever else is written.
const SPARED: Duration = Duration::from_secs(5 * 60);

/// What each tenant has written since its logs were looked at.
#[derive(Debug, Default)]
pub(crate) struct Written(Mutex<HashMap<TenantId, u64>>);

impl Written {
    pub(crate) fn add(&self, tenant: &TenantId, bytes: u64) {
        if bytes > 0 {
            let mut written = self.lock();
            match written.get_mut(tenant) {
                Some(sum) => *sum = sum.saturating_add(bytes),
                None => drop(written.insert(tenant.clone(), bytes)),
            }
        }
    }

    /// The tenants whose logs are to be looked at, and what they have written; they begin anew.
    fn due(&self) -> Vec<(TenantId, u64)> {
        self.lock().extract_if(|_, written| *written >= LOOK_AFTER).collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the logs of tenants for which it is time.
pub(crate) async fn bound_logs(inner: &Inner) -> Result<()> {
    let all = inner.store.claim_turn("logs", INTERVAL_MS).await?;
    let due = inner.written.due();
    if due.is_empty() && !all {
        return Ok(());
    }
    let looked = look(inner, |tenant| all || due.iter().any(|(due, _)| due == tenant)).await;
    if looked.is_err() {
        for (tenant, written) in &due {
            inner.written.add(tenant, *written);
        }
    }
    looked
}

async fn look(inner: &Inner, is_due: impl Fn(&TenantId) -> bool) -> Result<()> {
    let tenants = inner.store.tenants().await?.into_iter().filter(|tenant| is_due(&tenant.id));
    let mut logs: HashMap<TenantId, Logs> = tenants
        .map(|tenant| {
            let most = tenant.quotas.disk_bytes.unwrap_or(DEFAULT_BYTES);
            (tenant.id.clone(), Logs::new(tenant.id, most))
        })
        .collect();
    let due = logs.keys().cloned().collect();
    let directory = inner.directory.clone();
    let spared_since = now_ms() - i64::try_from(SPARED.as_millis()).unwrap_or(i64::MAX);
    let see = move |ended: Ended| {
        if let Some(logs) = logs.get_mut(&ended.tenant) {
            logs.see(&directory.process(&ended.process), ended.at > spared_since);
        }
    };
    inner.store.each_ended(due, Box::new(see)).await
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

    /// Removes the log if there is too much by now.
    fn see(&mut self, log: &Path, spared: bool) {
        let Some(size) = size(log) else { return };
        let first = self.taken == 0;
        self.taken = self.taken.saturating_add(size);
        if self.taken <= self.most || first || spared {
            return;
        }
        match fs::remove_dir_all(log) {
            Ok(()) => self.removed += 1,
            Err(error) => tracing::debug!(%error, path = %log.display(), "a log stays"),
        }
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
    use rusqlite::Connection;

    use super::*;
    use crate::{Engine, EngineOptions, recovery};

    fn id(tenant: &str) -> TenantId {
        TenantId::parse(tenant).unwrap()
    }

    #[test]
    fn who_has_written_much_is_looked_at_once() {
        let written = Written::default();
        let (one, two) = (id("one"), id("two"));
        written.add(&one, LOOK_AFTER / 2);
        written.add(&two, LOOK_AFTER - 1);
        assert_eq!(written.due(), []);
        written.add(&one, LOOK_AFTER / 2);
        assert_eq!(written.due(), [(one, LOOK_AFTER)]);
        assert_eq!(written.due(), []);
        written.add(&two, 1);
        assert_eq!(written.due(), [(two, LOOK_AFTER)]);
    }

    #[tokio::test]
    async fn what_could_not_be_looked_at_is_looked_at_again_and_holds_up_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let options =
            EngineOptions { attend: true, ..EngineOptions::new(directory.path(), Vec::new()) };
        let inner = Engine::open_alone(options).await.unwrap();
        bound_logs(&inner).await.unwrap();
        // Only whoever looks for ended processes reads what they ended with.
        let database = Connection::open(inner.directory.database()).unwrap();
        let broken = "INSERT INTO processes (id, sandbox, status, attendant, command, started_at, finished_at, exit)
                      VALUES ('n001abcdefgh', 'n001abcdefgh', 'succeeded', '', '', ?1, ?1, '{')";
        database.execute(broken, [now_ms()]).unwrap();
        let default = TenantId::default();
        inner.written.add(&default, LOOK_AFTER);
        bound_logs(&inner).await.unwrap_err();
        assert_eq!(inner.written.due(), [(default.clone(), LOOK_AFTER)]);
        inner.written.add(&default, LOOK_AFTER);
        recovery::sweep(&inner).await.unwrap();
        assert_eq!(inner.written.due(), [(default.clone(), LOOK_AFTER)], "it was tried");
        database.execute("DELETE FROM processes", []).unwrap();
        inner.written.add(&default, LOOK_AFTER);
        bound_logs(&inner).await.unwrap();
        assert_eq!(inner.written.due(), []);
    }

    #[test]
    fn the_oldest_go_and_the_newest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let check = |sizes: &[usize], most: u64, spared: usize, kept: &[usize]| {
            let logs: Vec<_> =
                (0..sizes.len()).map(|n| directory.path().join(n.to_string())).collect();
            for (log, size) in logs.iter().zip(sizes) {
                let _ = fs::remove_dir_all(log);
                if *size > 0 {
                    fs::create_dir(log).unwrap();
                    fs::write(log.join("log.0"), vec![0; size / 2]).unwrap();
                    fs::write(log.join("log.1"), vec![0; size - size / 2]).unwrap();
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
    }
}
