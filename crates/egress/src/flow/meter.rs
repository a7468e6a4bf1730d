//! Budgets and bandwidth: what a flow has used, what is left, when it must wait.
//!
//! A budget counts bytes of both directions together, in windows that begin with their first use. Bandwidth holds for
//! each direction by itself. Counters outlive a change of rules, so that changing them gives nothing back.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use belljar_policy::document::Budget;

/// Counters that are remembered; rules that were taken away long ago are forgotten first.
const MAX_COUNTERS: usize = 4096;
/// How far a bucket may fill while nothing flows.
const BURST: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the sandbox.
    Up,
    /// To the sandbox.
    Down,
}

/// All counters of one sandbox.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    counters: Mutex<HashMap<CounterKey, Arc<Counter>>>,
    pub(crate) up: Bucket,
    pub(crate) down: Bucket,
}

/// The rule, if the budget is a rule's, and the budget: bytes, requests, seconds.
type CounterKey = (Option<String>, [Option<u64>; 3]);

/// One budget and what of it is used.
#[derive(Debug)]
pub(crate) struct Counter {
    budget: Budget,
    used: Mutex<Used>,
}

#[derive(Debug)]
struct Used {
    since: Instant,
    bytes: u64,
    requests: u64,
}

/// A budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Spent;

impl Ledger {
    /// The counters for budgets of the sandbox (`rule` is none) or of a rule.
    pub(crate) fn counters(&self, rule: Option<&str>, budgets: &[Budget]) -> Vec<Arc<Counter>> {
        if budgets.is_empty() {
            return Vec::new();
        }
        let mut counters = self.counters.lock().unwrap_or_else(PoisonError::into_inner);
        if counters.len() + budgets.len() > MAX_COUNTERS {
            counters.retain(|_, counter| Arc::strong_count(counter) > 1);
        }
        budgets
            .iter()
            .map(|budget| {
                let key = [budget.bytes, budget.requests, budget.per_seconds];
                let counter = counters
                    .entry((rule.map(str::to_owned), key))
                    .or_insert_with(|| Arc::new(Counter::new(budget.clone())));
                Arc::clone(counter)
            })
            .collect()
    }
}

/// Counts one request on each, also where another is already spent.
pub(crate) fn count_request(counters: &[Arc<Counter>]) -> Result<(), Spent> {
    counters.iter().map(|counter| counter.count(0, 1)).fold(Ok(()), Result::and)
}

impl Counter {
    fn new(budget: Budget) -> Self {
        let used = Used { since: Instant::now(), bytes: 0, requests: 0 };
        Self { budget, used: Mutex::new(used) }
    }

    /// Counts. What goes over the budget is counted too, so that it stays spent.
    pub(crate) fn count(&self, bytes: u64, requests: u64) -> Result<(), Spent> {
        self.count_at(Instant::now(), bytes, requests)
    }

    fn count_at(&self, now: Instant, bytes: u64, requests: u64) -> Result<(), Spent> {
        let mut used = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seconds) = self.budget.per_seconds
            && now.saturating_duration_since(used.since) >= Duration::from_secs(seconds)
        {
            *used = Used { since: now, bytes: 0, requests: 0 };
        }
        used.bytes = used.bytes.saturating_add(bytes);
        used.requests = used.requests.saturating_add(requests);
        let over = |used: u64, budget: Option<u64>| budget.is_some_and(|budget| used > budget);
        // A flow that begins when every byte is used could not send one.
        let none_left = requests > 0 && self.budget.bytes.is_some_and(|left| used.bytes >= left);
        if over(used.bytes, self.budget.bytes)
            || over(used.requests, self.budget.requests)
            || none_left
        {
            Err(Spent)
        } else {
            Ok(())
        }
    }
}

/// A rate that several flows share.
#[derive(Debug)]
pub(crate) struct Bucket {
    /// Bytes per second; zero is no limit.
    rate: AtomicU64,
    /// When what was taken so far is paid for.
    paid: Mutex<Instant>,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { rate: AtomicU64::new(0), paid: Mutex::new(Instant::now()) }
    }
}

impl Bucket {
    pub(crate) fn set_rate(&self, bytes_per_second: Option<u64>) {
        // A limit of nothing at all is one byte per second, not no limit.
        self.rate.store(bytes_per_second.map_or(0, |rate| rate.max(1)), Ordering::Relaxed);
    }

    /// How long the one who moved `bytes` waits before moving more.
    pub(crate) fn take(&self, bytes: u64) -> Duration {
        self.take_at(Instant::now(), bytes)
    }

    fn take_at(&self, now: Instant, bytes: u64) -> Duration {
        let rate = self.rate.load(Ordering::Relaxed);
        if rate == 0 {
            return Duration::ZERO;
        }
        let mut paid = self.paid.lock().unwrap_or_else(PoisonError::into_inner);
        let begin = (*paid).max(now.checked_sub(BURST).unwrap_or(now));
        *paid = begin + Duration::from_secs_f64(bytes as f64 / rate as f64);
        paid.saturating_duration_since(now)
    }

    /// The most that should be moved at once, so that waits stay short.
    pub(crate) fn at_once(&self) -> Option<usize> {
        match self.rate.load(Ordering::Relaxed) {
            0 => None,
            rate => Some(usize::try_from(rate / 20).unwrap_or(usize::MAX).max(1)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn budget(bytes: Option<u64>, requests: Option<u64>, per_seconds: Option<u64>) -> Budget {
        Budget { bytes, requests, per_seconds }
    }

    #[test]
    fn budgets_are_spent_and_come_back_with_their_window() {
        let ledger = Ledger::default();
        let counter = &ledger.counters(None, &[budget(Some(100), None, Some(10))])[0];
        let now = Instant::now();
        assert_eq!(counter.count_at(now, 60, 0), Ok(()));
        assert_eq!(counter.count_at(now, 40, 0), Ok(()));
        assert_eq!(counter.count_at(now, 0, 1), Err(Spent), "nothing is left for a new flow");
        assert_eq!(counter.count_at(now, 1, 0), Err(Spent));
        assert_eq!(counter.count_at(now + Duration::from_secs(10), 100, 0), Ok(()));
    }

    #[test]
    fn changing_rules_gives_nothing_back() {
        let ledger = Ledger::default();
        let budgets = [budget(None, Some(1), None)];
        assert_eq!(ledger.counters(Some("a"), &budgets)[0].count(0, 1), Ok(()));
        assert_eq!(ledger.counters(Some("b"), &budgets)[0].count(0, 1), Ok(()));
        assert_eq!(ledger.counters(Some("a"), &budgets)[0].count(0, 1), Err(Spent));
    }

    #[test]
    fn bandwidth_is_shared_and_waits() {
        let bucket = Bucket::default();
        let now = Instant::now() + Duration::from_secs(60);
        assert_eq!(bucket.take_at(now, 1 << 30), Duration::ZERO);
        bucket.set_rate(Some(1000));
        assert_eq!(bucket.take_at(now, 100), Duration::ZERO, "a burst");
        assert_eq!(bucket.take_at(now, 500).as_millis(), 500);
        assert_eq!(bucket.take_at(now + Duration::from_millis(500), 1000).as_millis(), 1000);
    }
}
