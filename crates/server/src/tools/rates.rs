//! How often a tool may be called by one sandbox, where its declaration says so.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use belljar_engine::SandboxId;

use crate::limit::Bucket;

/// Beyond, those that have grown back are forgotten.
const MAX_KEPT: usize = 4096;

#[derive(Debug, Default)]
pub(super) struct Rates(Mutex<HashMap<(SandboxId, String), Bucket>>);

impl Rates {
    /// Counts a call; `false` if there were too many.
    pub(super) fn take(&self, sandbox: &SandboxId, tool: &str, per_second: u32) -> bool {
        let rate = f64::from(per_second);
        let now = Instant::now();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            // Each that was not used for a second is full again.
            kept.retain(|_, bucket| bucket.age(now).as_secs() < 1);
        }
        let key = (sandbox.clone(), tool.to_owned());
        let bucket = kept.entry(key).or_insert_with(|| Bucket::full(rate, now));
        bucket.refill(rate, rate, now);
        bucket.take()
    }
}
