//! What sandboxes may add to the log by what happens inside them.
//!
//! The log is kept up to a size that all share, so whoever could write as much as it likes would push everybody's records
//! out within seconds. Each sandbox has a share; what exceeds it is left out and counted. The next record that fits says how
//! many are missing before it (`lost`), and one of its own says so where none comes any more.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use belljar_codes::Code;
use belljar_policy::{SandboxId, TenantId};

use super::{AuditEntry, AuditLog};

/// Records that a sandbox may add in a second, and how many it may save up.
const PER_SECOND: f64 = 50.0;
pub(crate) const SAVED_UP: f64 = 2000.0;

/// The detail in which a record tells how many are missing before it.
const LOST_BEFORE: &str = "lost";

/// Fewer shares than this are never looked through for those that are whole.
const MANY: usize = 4096;

/// What all sandboxes have left.
#[derive(Debug, Default)]
pub(super) struct Shares(Mutex<All>);

#[derive(Debug, Default)]
struct All {
    shares: HashMap<SandboxId, Share>,
    /// How many there were when they were looked through.
    looked_at: usize,
}

#[derive(Debug)]
struct Share {
    tenant: String,
    left: f64,
    at: Instant,
    /// Records that were left out since the last one that was not.
    lost: u64,
}

impl Shares {
    /// Takes one record off a sandbox's share. `None`: it is used up; otherwise how many were left out before it.
    fn take(&self, id: &SandboxId, tenant: &str, now: Instant) -> Option<u64> {
        let mut all = self.lock();
        if all.shares.len() >= 2 * all.looked_at.max(MANY / 2) {
            // Something may be recorded after a sandbox was forgotten. A share that is whole is as good as none.
            all.shares.retain(|_, share| share.lost > 0 || share.refilled(now) < SAVED_UP);
            all.looked_at = all.shares.len();
        }
        let full = || Share { tenant: tenant.to_owned(), left: SAVED_UP, at: now, lost: 0 };
        let share = all.shares.entry(id.clone()).or_insert_with(full);
        share.left = share.refilled(now);
        share.at = now;
        if share.left < 1.0 {
            share.lost += 1;
            return None;
        }
        share.left -= 1.0;
        Some(std::mem::take(&mut share.lost))
    }

    fn lock(&self) -> MutexGuard<'_, All> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    fn refilled(&self, now: Instant) -> f64 {
        let passed = now.saturating_duration_since(self.at);
        (self.left + passed.as_secs_f64() * PER_SECOND).min(SAVED_UP)
    }
}

impl AuditEntry {
    /// Whether records of what it is about are missing.
    pub(crate) fn tells_of_a_loss(&self) -> bool {
        self.action == super::writer::LOST || self.detail.contains_key(LOST_BEFORE)
    }
}

impl AuditLog {
    /// Adds an entry that something inside a sandbox caused, if the sandbox's share allows it.
    pub fn record_from_inside(
        &self,
        sandbox: &SandboxId,
        tenant: &TenantId,
        mut entry: AuditEntry,
    ) {
        let Some(lost) = self.shares.take(sandbox, tenant.as_str(), Instant::now()) else { return };
        if lost > 0 {
            entry.detail.insert(LOST_BEFORE.to_owned(), lost.to_string());
        }
        self.record(AuditEntry {
            tenant: tenant.to_string(),
            sandbox: Some(sandbox.as_str().to_owned()),
            ..entry
        });
    }

    /// A sandbox is gone: what was left out at its end is counted here.
    pub(crate) fn forget(&self, sandbox: &SandboxId) {
        let share = self.shares.lock().shares.remove(sandbox);
        if let Some(share) = share.filter(|share| share.lost > 0) {
            self.tell(sandbox, share.tenant, share.lost);
        }
    }

    /// The engine ends, and with it the counts: what was left out so far is counted here.
    pub(crate) fn settle(&self) {
        let mut all = self.shares.lock();
        let lossy = all.shares.iter_mut().filter(|(_, share)| share.lost > 0);
        let lost: Vec<_> = lossy
            .map(|(id, share)| (id.clone(), share.tenant.clone(), std::mem::take(&mut share.lost)))
            .collect();
        drop(all);
        for (sandbox, tenant, lost) in lost {
            self.tell(&sandbox, tenant, lost);
        }
    }

    fn tell(&self, sandbox: &SandboxId, tenant: String, lost: u64) {
        self.record(AuditEntry {
            actor: super::writer::SELF.to_owned(),
            tenant,
            action: super::writer::LOST.to_owned(),
            sandbox: Some(sandbox.as_str().to_owned()),
            outcome: Code::RateLimited.as_str().to_owned(),
            detail: BTreeMap::from([("records".to_owned(), lost.to_string())]),
            ..AuditEntry::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{AuditQuery, Engine, EngineOptions};

    #[test]
    fn a_share_grows_back_and_one_sandbox_takes_nothing_from_another() {
        let shares = Shares::default();
        let one = SandboxId::parse("n001abcdefgh").unwrap();
        let other = SandboxId::parse("n002abcdefgh").unwrap();
        let start = Instant::now();
        let take = |id, after_ms| shares.take(id, "a", start + Duration::from_millis(after_ms));
        assert_eq!((0..3000).filter(|_| take(&one, 0).is_some()).count(), 2000);
        assert_eq!(take(&other, 0), Some(0));
        // One has come back, and it tells of those that were left out.
        assert_eq!(take(&one, 20), Some(1000));
        assert_eq!(take(&one, 20), None);
        assert_eq!(take(&one, 60), Some(1));
    }

    #[test]
    fn shares_that_are_whole_go_and_others_are_not_looked_through_each_time() {
        let shares = Shares::default();
        let start = Instant::now();
        let take = |number: usize, at| {
            let id = SandboxId::parse(&format!("n001a{number:07}")).unwrap();
            shares.take(&id, "a", at)
        };
        for number in 0..=MANY {
            take(number, start);
        }
        let counted = || {
            let all = shares.lock();
            (all.shares.len(), all.looked_at)
        };
        assert_eq!(counted(), (MANY + 1, MANY));
        let later = start + Duration::from_secs(3600);
        for number in 0..MANY {
            take(MANY + number, later);
        }
        assert_eq!(counted(), (2 * MANY, MANY), "there are not twice as many yet");
        take(2 * MANY, later);
        assert_eq!(counted(), (MANY + 1, MANY), "those that are whole are gone");
    }

    const FLOOD: usize = SAVED_UP as usize * 2;

    fn id() -> SandboxId {
        SandboxId::parse("n001abcdefgh").unwrap()
    }

    fn flood(log: &AuditLog) {
        let tenant = TenantId::parse("a").unwrap();
        for _ in 0..FLOOD {
            let entry = AuditEntry { action: "tool.call".to_owned(), ..AuditEntry::default() };
            log.record_from_inside(&id(), &tenant, entry);
        }
    }

    /// Every record is there, or was counted; tells how many are there.
    async fn check(log: &AuditLog) -> usize {
        let mut reader = log.query(AuditQuery::default()).await;
        let (mut written, mut lost, mut told) = (0, 0, 0);
        while let Some(record) = reader.next().await.unwrap() {
            let entry = record.entry;
            assert_eq!(
                (entry.tenant.as_str(), entry.sandbox.as_deref()),
                ("a", Some(id().as_str()))
            );
            let number = |name| entry.detail.get(name).map_or(0, |n| n.parse::<usize>().unwrap());
            lost += number("lost");
            match entry.action.as_str() {
                "tool.call" => written += 1,
                _ => {
                    assert_eq!(entry.action, "audit.lost");
                    assert_eq!(entry.outcome, "rate-limited");
                    told += number("records");
                }
            }
        }
        // A record that came back at the very last tells of all the others.
        assert_eq!(written + lost + told, FLOOD);
        written
    }

    #[tokio::test]
    async fn what_was_left_out_is_counted_when_a_sandbox_goes() {
        let directory = tempfile::tempdir().unwrap();
        let log = AuditLog::of(directory.path());
        let begun = Instant::now();
        flood(&log);
        let came_back = begun.elapsed().as_secs_f64() * PER_SECOND;
        log.forget(&id());
        log.forget(&id());
        log.settle();
        let written = check(&log).await;
        assert!(written as f64 <= SAVED_UP + came_back + 1.0, "{written}");
    }

    #[tokio::test]
    async fn what_was_left_out_is_counted_when_a_server_ends() {
        let directory = tempfile::tempdir().unwrap();
        let options = EngineOptions::new(directory.path(), Vec::new());
        let engine = Engine::open(options).await.unwrap();
        flood(&engine.inner.audit);
        engine.close().await;
        check(&AuditLog::of(directory.path())).await;
    }
}
