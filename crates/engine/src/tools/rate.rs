//! How often one sandbox may call.

use std::time::Instant;

/// A quantity that grows back.
#[derive(Debug)]
pub(super) struct Rate {
    per_second: f64,
    left: f64,
    at: Instant,
}

impl Rate {
    pub(super) fn new(per_second: u32, now: Instant) -> Self {
        let per_second = f64::from(per_second);
        Self { per_second, left: per_second, at: now }
    }

    /// Counts one; `false` if there were too many.
    pub(super) fn take(&mut self, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f64();
        self.left = (self.left + since * self.per_second).min(self.per_second);
        self.at = now;
        let enough = self.left >= 1.0;
        if enough {
            self.left -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_second_gives_a_seconds_worth() {
        let start = Instant::now();
        let mut rate = Rate::new(10, start);
        let mut taken = |now| (0..100).filter(|_| rate.take(now)).count();
        assert_eq!(taken(start), 10);
        assert_eq!(taken(start + Duration::from_millis(500)), 5);
        assert_eq!(taken(start + Duration::from_secs(60)), 10);
    }
}
