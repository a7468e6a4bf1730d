//! How often a sandbox was made of parts that were ready.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Reserve {
    hits: AtomicU64,
    misses: AtomicU64,
}

impl Reserve {
    /// Notes a start, unless the backend has no reserve.
    pub(crate) fn count(&self, was_ready: Option<bool>) {
        match was_ready {
            Some(true) => self.hits.fetch_add(1, Ordering::Relaxed),
            Some(false) => self.misses.fetch_add(1, Ordering::Relaxed),
            None => return,
        };
    }

    pub(crate) fn counted(&self) -> [(&'static str, u64); 2] {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        [("hit", read(&self.hits)), ("miss", read(&self.misses))]
    }
}
