//! Commands start in the order in which they came, few at a time, and short ones have the processors until they end.
//!
//! Starting takes processor time and little else, and so do most commands. Where many begin at once, each would get a little
//! of it now and then and all would be ready late; in turn, each is ready as soon as it can be and the last no later than
//! before. Tenants do not wait for each other: between them the kernel divides the processors.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use belljar_policy::TenantId;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

/// A turn ends after this time, even if the program does not run yet: what hangs keeps nobody from starting.
const LONGEST_START: Duration = Duration::from_millis(10);

/// So long after it was sent a command has to share with the next.
const SHORT: Duration = Duration::from_millis(4);

/// Whoever has waited so long goes ahead without.
const PATIENCE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(crate) struct Turns {
    at_once: usize,
    /// Of those who have commands that start.
    tenants: Mutex<HashMap<TenantId, Weak<Semaphore>>>,
}

/// The others wait while this is there.
#[derive(Debug)]
pub(super) struct Turn {
    /// `None`: it is over.
    permit: Option<OwnedSemaphorePermit>,
    until: Instant,
}

impl Turns {
    fn new(at_once: usize) -> Self {
        Self { at_once, tenants: Mutex::default() }
    }

    /// Waits for a turn.
    pub(super) async fn wait(&self, tenant: &TenantId) -> Turn {
        let permit = timeout(PATIENCE, self.of(tenant).acquire_owned()).await;
        let permit = permit.ok().and_then(Result::ok);
        Turn { permit, until: Instant::now() + LONGEST_START }
    }

    fn of(&self, tenant: &TenantId) -> Arc<Semaphore> {
        let mut tenants = self.tenants.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(turns) = tenants.get(tenant).and_then(Weak::upgrade) {
            return turns;
        }
        tenants.retain(|_, turns| turns.strong_count() > 0);
        let turns = Arc::new(Semaphore::new(self.at_once));
        tenants.insert(tenant.clone(), Arc::downgrade(&turns));
        turns
    }
}

impl Turn {
    /// One that is over.
    pub(super) fn over() -> Self {
        Self { permit: None, until: Instant::now() }
    }

    /// Does a start in it.
    pub(super) async fn start<T>(&mut self, start: impl Future<Output = T>) -> T {
        let sent = Instant::now();
        let mut start = pin!(start);
        let started = match timeout_at(self.until, &mut start).await {
            Ok(started) => started,
            Err(_) => {
                self.end();
                start.await
            }
        };
        self.until = sent + SHORT;
        started
    }

    /// When it is over at the latest, where it is not yet.
    pub(super) fn ends_at(&self) -> Option<Instant> {
        self.permit.as_ref().map(|_| self.until)
    }

    pub(super) fn end(&mut self) {
        self.permit = None;
    }
}

impl Default for Turns {
    /// Two more at once than there are processors: a command that waits for us leaves its processor to another.
    fn default() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Self::new(processors + 2)
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;
    use std::sync::Mutex;

    use tokio::task::JoinSet;
    use tokio::time::{sleep, sleep_until};

    use super::*;

    const STARTING: Duration = Duration::from_millis(2);

    fn tenant(name: &str) -> TenantId {
        TenantId::parse(name).unwrap()
    }

    /// Runs six commands that take some time to start and some to end, two at a time. When each of them began.
    async fn begin_six(running: Duration) -> Vec<(usize, Duration)> {
        let (turns, order) = (Arc::new(Turns::new(2)), Arc::new(Mutex::new(Vec::new())));
        let begun = Instant::now();
        let mut commands = JoinSet::new();
        for number in 0..6 {
            let (turns, order) = (Arc::clone(&turns), Arc::clone(&order));
            commands.spawn(async move {
                let mut turn = turns.wait(&tenant("one")).await;
                order.lock().unwrap().push((number, begun.elapsed()));
                turn.start(sleep(STARTING)).await;
                let ends_at = turn.ends_at().unwrap();
                tokio::select! {
                    () = sleep(running) => {}
                    () = sleep_until(ends_at) => turn.end(),
                }
            });
        }
        commands.join_all().await;
        Arc::try_unwrap(order).unwrap().into_inner().unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn commands_begin_in_order() {
        let ms = Duration::from_millis;
        let every =
            |ms: Duration| (0..6).map(|number| (number, ms * (number as u32 / 2))).collect();
        let expected: Vec<_> = every(STARTING + ms(1));
        assert_eq!(begin_six(ms(1)).await, expected, "short ones have their turn to the end");
        let expected: Vec<_> = every(SHORT);
        assert_eq!(begin_six(ms(1000)).await, expected, "long ones share");
    }

    /// How long a start of a tenant waits behind others, of one tenant, that never end.
    async fn wait_behind(hanging: usize, name: &str) -> Duration {
        let turns = Arc::new(Turns::new(1));
        let mut starts = JoinSet::new();
        for _ in 0..hanging {
            let turns = Arc::clone(&turns);
            starts.spawn(async move {
                let mut turn = turns.wait(&tenant("one")).await;
                turn.start(pending::<()>()).await;
            });
        }
        tokio::task::yield_now().await;
        let begun = Instant::now();
        let _turn = turns.wait(&tenant(name)).await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn what_hangs_keeps_nobody_from_starting() {
        assert_eq!(wait_behind(0, "one").await, Duration::ZERO);
        assert_eq!(wait_behind(1, "one").await, LONGEST_START);
        assert_eq!(wait_behind(3, "one").await, 3 * LONGEST_START);
        assert_eq!(wait_behind(100, "one").await, PATIENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn tenants_do_not_wait_for_each_other() {
        assert_eq!(wait_behind(100, "two").await, Duration::ZERO);
    }

    #[tokio::test]
    async fn nothing_is_kept_of_who_starts_nothing() {
        let turns = Turns::new(1);
        for number in 0..100 {
            drop(turns.wait(&tenant(&format!("t{number}"))).await);
        }
        assert_eq!(turns.tenants.lock().unwrap().len(), 1);
    }
}
