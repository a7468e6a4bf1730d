//! Commands start in the order in which they came, few at a time.
//!
//! Starting takes processor time and little else. Where many begin at once, each would get a little of it now and then and
//! all would be ready late; in turn, each is ready as soon as it can be and the last no later than before.

use std::pin::pin;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};

/// A turn ends after this time, even if the program does not run yet: what hangs keeps nobody from starting.
const LONGEST: Duration = Duration::from_millis(10);

/// Whoever has waited so long goes ahead without.
const PATIENCE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Turns(Semaphore);

/// The others wait while this is there.
#[derive(Debug)]
pub(super) struct Turn<'t> {
    /// `None`: it goes ahead without.
    _permit: Option<SemaphorePermit<'t>>,
    since: Instant,
}

impl Turns {
    /// Waits for a turn.
    pub(super) async fn wait(&self) -> Turn<'_> {
        let permit = timeout(PATIENCE, self.0.acquire()).await;
        Turn { _permit: permit.ok().and_then(Result::ok), since: Instant::now() }
    }
}

impl Turn<'_> {
    /// Does the last of it. The turn is over with that, or before.
    pub(super) async fn end_with<T>(self, start: impl Future<Output = T>) -> T {
        let mut start = pin!(start);
        match timeout_at(self.since + LONGEST, &mut start).await {
            Ok(done) => done,
            Err(_) => {
                drop(self);
                start.await
            }
        }
    }
}

impl Default for Turns {
    /// As many at once as there are processors.
    fn default() -> Self {
        Self(Semaphore::new(std::thread::available_parallelism().map_or(1, usize::from)))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::{Arc, Mutex};

    use tokio::task::JoinSet;
    use tokio::time::sleep;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn starts_go_in_order() {
        let (turns, order) = (Arc::new(Turns(Semaphore::new(2))), Arc::new(Mutex::new(Vec::new())));
        let begun = Instant::now();
        let mut starts = JoinSet::new();
        for number in 0..6 {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            starts.spawn(async move {
                let start = async {
                    order.lock().unwrap().push(number);
                    sleep(Duration::from_millis(2)).await;
                };
                turns.wait().await.end_with(start).await;
            });
        }
        starts.join_all().await;
        assert_eq!(*order.lock().unwrap(), [0, 1, 2, 3, 4, 5]);
        assert_eq!(begun.elapsed(), Duration::from_millis(6), "two at a time");
    }

    /// How long a start waits behind others that never end.
    async fn wait_behind(hanging: usize) -> Duration {
        let turns = Arc::new(Turns(Semaphore::new(1)));
        let mut starts = JoinSet::new();
        for _ in 0..hanging {
            let turns = Arc::clone(&turns);
            starts.spawn(async move { turns.wait().await.end_with(pending::<()>()).await });
        }
        tokio::task::yield_now().await;
        let begun = Instant::now();
        turns.wait().await.end_with(async {}).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn what_hangs_keeps_nobody_from_starting() {
        assert_eq!(wait_behind(0).await, Duration::ZERO);
        assert_eq!(wait_behind(1).await, LONGEST);
        assert_eq!(wait_behind(3).await, 3 * LONGEST);
        assert_eq!(wait_behind(100).await, PATIENCE);
    }
}
