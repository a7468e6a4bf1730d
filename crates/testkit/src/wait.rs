//! Waiting for a condition, with a bound.

use std::time::{Duration, Instant};

/// Enough for anything that the kernel finishes by itself: namespaces and control groups go away after the call that
/// ended them has returned.
pub const PROMPT: Duration = Duration::from_secs(30);

const BETWEEN_LOOKS: Duration = Duration::from_millis(5);

/// Looks until `condition` gives something, or the time is over.
pub fn wait_until<T>(time: Duration, mut condition: impl FnMut() -> Option<T>) -> Option<T> {
    let end = Instant::now() + time;
    loop {
        if let Some(found) = condition() {
            return Some(found);
        }
        if Instant::now() >= end {
            return None;
        }
        std::thread::sleep(BETWEEN_LOOKS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_ends_with_the_condition_or_the_time() {
        let mut looks = 0;
        let found = wait_until(PROMPT, || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(found, Some(3));
        assert_eq!(wait_until(Duration::ZERO, || None::<()>), None);
    }
}
