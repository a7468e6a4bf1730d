//! Tells webhooks of events.
//!
//! Each webhook is told one event after the other, in order; a slow one holds up nobody else, and many slow ones of one
//! tenant hold up only each other. An event that could not be
//! delivered is tried again, later and later, for three days. How far each has got is in the store, so that it goes on
//! there after a restart; an event may then come twice, with the same `belljar-delivery`.

mod address;
mod send;
mod slots;

use std::time::{Duration, SystemTime};

use belljar_engine::{Engine, Event, Webhook};
use tokio::task::JoinSet;

use send::Sender;
pub(crate) use send::check;
use slots::Slots;

const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(3600);

/// An event that is older than this when it cannot be delivered is given up.
const GIVE_UP: Duration = Duration::from_secs(3 * 24 * 3600);

/// New webhooks, and those whose pause is over, are seen this late at most.
const LOOK_AROUND: Duration = Duration::from_secs(1);

/// Events that come in a burst are looked at together.
const GATHER: Duration = Duration::from_millis(20);

/// Delivers until dropped.
pub(crate) async fn deliver(engine: Engine) {
    let sender = Sender::default();
    let mut events = engine.events(None);
    let mut under_way = JoinSet::new();
    let mut busy = Slots::default();
    loop {
        let known = begin_due(&engine, &sender, &mut under_way, &mut busy).await;
        tokio::select! {
            Some(ended) = under_way.join_next(), if !under_way.is_empty() => {
                match ended {
                    Ok(id) => busy.free(&id),
                    Err(error) => {
                        tracing::error!(%error, "a delivery broke off");
                        busy.clear();
                        under_way.shutdown().await;
                    }
                }
            }
            // Where nobody wants to be told, events are nothing to wake up for.
            _ = events.next(), if known => tokio::time::sleep(GATHER).await,
            () = tokio::time::sleep(LOOK_AROUND) => {}
        }
    }
}

/// Begins whatever can be tried now. Tells whether there are webhooks at all.
async fn begin_due(
    engine: &Engine,
    sender: &Sender,
    under_way: &mut JoinSet<String>,
    busy: &mut Slots,
) -> bool {
    let webhooks = engine.webhooks();
    let due = match webhooks.due(SystemTime::now()).await {
        Ok(due) => due,
        Err(error) => {
            tracing::warn!(%error, "webhooks cannot be read");
            return false;
        }
    };
    for (webhook, event) in busy.begin(due) {
        under_way.spawn(attempt(engine.clone(), sender.clone(), webhook, event));
    }
    webhooks.any().await.unwrap_or(false)
}

/// Tries once, and remembers how it went. Returns the webhook's id.
async fn attempt(engine: Engine, sender: Sender, webhook: Webhook, event: Event) -> String {
    let sent = sender.send(&webhook, &event).await;
    let webhooks = engine.webhooks();
    crate::measure::delivery(sent.is_ok());
    let remembered = match &sent {
        Ok(()) => webhooks.delivered(&webhook.id, event.seq).await,
        Err(error) => {
            tracing::debug!(%error, webhook = webhook.id, seq = event.seq, "not delivered");
            let now = SystemTime::now();
            let age = now.duration_since(event.at).unwrap_or_default();
            let retry_at = (age < GIVE_UP).then(|| now + pause(webhook.attempts));
            webhooks.failed(&webhook.id, event.seq, error, retry_at).await
        }
    };
    if let Err(error) = remembered {
        tracing::warn!(%error, webhook = webhook.id, "a delivery was not remembered");
        // It is due again at once, so the store must not be asked in a loop.
        tokio::time::sleep(FIRST_PAUSE).await;
    }
    webhook.id
}

/// Doubles with each attempt, and differs by up to a quarter so that not all come back at the same moment.
fn pause(attempts: u32) -> Duration {
    let pause = FIRST_PAUSE.saturating_mul(1 << attempts.min(12)).min(LONGEST_PAUSE);
    let [random] = crate::random::bytes::<1>();
    pause.mul_f64(0.75 + f64::from(random) / 1024.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_an_hour() {
        for (attempts, expected) in
            [(0, 1.0), (1, 2.0), (5, 32.0), (11, 2048.0), (12, 3600.0), (u32::MAX, 3600.0)]
        {
            let pause = pause(attempts).as_secs_f64();
            assert!((0.75 * expected..=expected).contains(&pause), "{attempts}: {pause}");
        }
    }
}
