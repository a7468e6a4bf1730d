//! Sums over all records of a sandbox.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Record, Stage, Verdict};

#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) allowed: AtomicU64,
    pub(crate) denied: AtomicU64,
    pub(crate) bytes_up: AtomicU64,
    pub(crate) bytes_down: AtomicU64,
}

impl Tally {
    pub(crate) fn add(&self, record: &Record) {
        let verdicts = match record.verdict {
            Verdict::Allow => &self.allowed,
            Verdict::Deny => &self.denied,
        };
        verdicts.fetch_add(1, Ordering::Relaxed);
        // The bytes of a request are among those of its flow.
        if record.stage == Stage::Flow {
            self.bytes_up.fetch_add(record.bytes_up, Ordering::Relaxed);
            self.bytes_down.fetch_add(record.bytes_down, Ordering::Relaxed);
        }
    }
}
