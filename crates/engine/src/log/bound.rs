//! How much the logs of processes that have ended may take.
//!
//! A log is kept for as long as its process is remembered, and a tenant may run any number of processes meanwhile. So
//! beyond a bound its oldest logs go before their time; that the process ran and how it ended stays known. The log of a
//! process that runs is bounded by itself, and the newest that has ended is always kept.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_policy::TenantId;

use crate::engine::Inner;
use crate::{Result, aside};

/// For a tenant that has no quota for disk.
const DEFAULT_BYTES: u64 = 16 << 30;

/// The logs of all tenants are looked at this often, and those of one tenant whenever it has written so much more: looking
/// means to read the records of all its processes.
const INTERVAL_MS: i64 = 3_600_000;
const LOOK_AFTER: u64 = 1 << 30;

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

    /// The tenants whose logs are to be looked at; they begin anew.
    fn due(&self) -> Vec<TenantId> {
        self.lock()
            .extract_if(|_, written| *written >= LOOK_AFTER)
            .map(|(tenant, _)| tenant)
            .collect()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<TenantId, u64>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the logs of tenants for which it is time.
pub(crate) async fn bound_logs(inner: &Arc<Inner>) -> Result<()> {
    let due = inner.written.due();
    let all = inner.store.claim_turn("logs", INTERVAL_MS).await?;
    if due.is_empty() && !all {
        return Ok(());
    }
    for tenant in inner.store.tenants().await? {
        if !all && !due.contains(&tenant.id) {
            continue;
        }
        let most = tenant.quotas.disk_bytes.unwrap_or(DEFAULT_BYTES);
        let ended = inner.store.ended_processes(&tenant.id).await?;
        let logs: Vec<_> = ended.iter().map(|process| inner.directory.process(process)).collect();
        let removed = aside(move || remove_beyond(&logs, most)).await?;
        if removed > 0 {
            tracing::info!(tenant = %tenant.id, removed, "logs were removed before their time: too many");
        }
    }
    Ok(())
}

/// Removes the oldest of logs, which come newest first. Tells how many.
fn remove_beyond(logs: &[PathBuf], most: u64) -> usize {
    let (mut taken, mut removed) = (0_u64, 0);
    for log in logs {
        let Some(size) = size(log) else { continue };
        let first = taken == 0;
        taken = taken.saturating_add(size);
        if taken <= most || first {
            continue;
        }
        match fs::remove_dir_all(log) {
            Ok(()) => removed += 1,
            Err(error) => tracing::debug!(%error, path = %log.display(), "a log stays"),
        }
    }
    removed
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
    use super::*;

    #[test]
    fn who_has_written_much_is_looked_at_once() {
        let written = Written::default();
        let (one, two) = (TenantId::parse("one").unwrap(), TenantId::parse("two").unwrap());
        written.add(&one, LOOK_AFTER / 2);
        written.add(&two, LOOK_AFTER - 1);
        assert_eq!(written.due(), []);
        written.add(&one, LOOK_AFTER / 2);
        assert_eq!(written.due(), [one]);
        assert_eq!(written.due(), []);
        written.add(&two, 1);
        assert_eq!(written.due(), [two]);
    }

    #[test]
    fn the_oldest_go_and_the_newest_stays() {
        let directory = tempfile::tempdir().unwrap();
        let check = |sizes: &[usize], most: u64, kept: &[usize]| {
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
            let there = sizes.iter().filter(|size| **size > 0).count();
            assert_eq!(remove_beyond(&logs, most), there - kept.len());
            let left: Vec<_> = (0..logs.len()).filter(|number| logs[*number].exists()).collect();
            assert_eq!(left, kept, "{sizes:?} in {most}");
            assert_eq!(remove_beyond(&logs, most), 0);
        };
        check(&[], 10, &[]);
        check(&[10, 10, 10], 30, &[0, 1, 2]);
        check(&[10, 10, 10], 29, &[0, 1]);
        check(&[10, 0, 10, 10], 20, &[0, 2]);
        check(&[10, 10], 5, &[0]);
        check(&[10, 30, 1], 20, &[0]);
    }
}
