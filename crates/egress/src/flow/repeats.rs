//! What is recorded once although it happens again and again.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The same denial within this time is the same event: clients ask for both address families, search domains, again.
const SAME_FOR: Duration = Duration::from_secs(10);
const MAX_KEPT: usize = 1024;

#[derive(Debug, Default)]
pub(crate) struct Repeats(Mutex<HashMap<String, Instant>>);

impl Repeats {
    /// Whether `what` did not happen just now.
    pub(crate) fn is_new(&self, what: String) -> bool {
        let now = Instant::now();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, at| now.saturating_duration_since(*at) < SAME_FOR);
        }
        if kept.len() >= MAX_KEPT {
            // Better a repeated record than a missing one.
            kept.clear();
        }
        match kept.insert(what, now) {
            Some(at) => now.saturating_duration_since(at) >= SAME_FOR,
            None => true,
        }
    }
}

/// A number of events per second, twice as many in a burst.
#[derive(Debug)]
pub(crate) struct Rate {
    per_second: u32,
    state: Mutex<(Instant, f64)>,
}

impl Rate {
    pub(crate) fn new(per_second: u32) -> Self {
        let full = f64::from(per_second) * 2.0;
        Self { per_second, state: Mutex::new((Instant::now(), full)) }
    }

    pub(crate) fn take(&self) -> bool {
        self.take_at(Instant::now())
    }

    fn take_at(&self, now: Instant) -> bool {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let rate = f64::from(self.per_second);
        let gained = now.saturating_duration_since(state.0).as_secs_f64() * rate;
        *state = (now, (state.1 + gained).min(rate * 2.0));
        let enough = state.1 >= 1.0;
        if enough {
            state.1 -= 1.0;
        }
        enough
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_seen_and_bounded() {
        let repeats = Repeats::default();
        assert!(repeats.is_new("a".to_owned()));
        assert!(!repeats.is_new("a".to_owned()));
        for n in 0..5000 {
            assert!(repeats.is_new(format!("{n}.example")));
        }
        assert!(repeats.0.lock().unwrap().len() <= MAX_KEPT);
    }

    #[test]
    fn a_rate_has_a_burst_and_comes_back() {
        let rate = Rate::new(10);
        let now = Instant::now();
        assert_eq!((0..100).filter(|_| rate.take_at(now)).count(), 20);
        let later = now + Duration::from_secs(1);
        assert_eq!((0..100).filter(|_| rate.take_at(later)).count(), 10);
    }
}
