//! How long the sandbox may go on: without being talked to, and at all.

use std::time::{Duration, Instant};

use belljar_protocol::v1;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Lease {
    idle: Option<Duration>,
    hard_end: Option<Instant>,
    /// When the host was last heard, or a process ended.
    active: Instant,
}

/// Which clock ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    Idle,
    Hard,
}

impl Lease {
    /// No limits, for the time before the agent is configured.
    pub(crate) fn endless(now: Instant) -> Self {
        Self { idle: None, hard_end: None, active: now }
    }

    /// Both clocks start when the lease is given.
    pub(crate) fn grant(lease: &v1::Lease, now: Instant) -> Self {
        let limit = |ms: u64| (ms > 0).then(|| Duration::from_millis(ms));
        Self {
            idle: limit(lease.idle_ms),
            hard_end: limit(lease.hard_ms).and_then(|hard| now.checked_add(hard)),
            active: now,
        }
    }

    /// The host spoke, or a process ended.
    pub(crate) fn touch(&mut self, now: Instant) {
        self.active = now;
    }

    /// Which clock has run out; a running process stops the idle one.
    pub(crate) fn check(&self, running: bool, now: Instant) -> Option<Ended> {
        if self.hard_end.is_some_and(|end| end <= now) {
            Some(Ended::Hard)
        } else if !running && self.idle_end().is_some_and(|end| end <= now) {
            Some(Ended::Idle)
        } else {
            None
        }
    }

    /// When to check again.
    pub(crate) fn next_check(&self, running: bool) -> Option<Instant> {
        let idle_end = if running { None } else { self.idle_end() };
        [self.hard_end, idle_end].into_iter().flatten().min()
    }

    fn idle_end(&self) -> Option<Instant> {
        self.active.checked_add(self.idle?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_clocks() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut lease = Lease::grant(&v1::Lease { idle_ms: 100, hard_ms: 250 }, start);
        assert_eq!(lease.check(false, at(99)), None);
        assert_eq!(lease.check(false, at(100)), Some(Ended::Idle));
        assert_eq!(lease.check(true, at(100)), None);
        lease.touch(at(90));
        assert_eq!(lease.check(false, at(189)), None);
        assert_eq!(lease.next_check(false), Some(at(190)));
        assert_eq!(lease.next_check(true), Some(at(250)));
        lease.touch(at(249));
        assert_eq!(lease.check(true, at(250)), Some(Ended::Hard));
    }

    #[test]
    fn no_limit_never_ends() {
        let start = Instant::now();
        let lease = Lease::grant(&v1::Lease { idle_ms: 0, hard_ms: u64::MAX }, start);
        assert_eq!(lease.check(false, start + Duration::from_secs(1 << 30)), None);
        assert_eq!(Lease::endless(start).next_check(false), None);
    }
}
