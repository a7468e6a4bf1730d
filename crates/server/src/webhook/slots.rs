//! Who is talked to at the same time, and who is next: where there are more webhooks than slots, whoever was talked to last
//! waits for the others.

use std::collections::HashMap;

use belljar_engine::{TenantId, Webhook};

/// Webhooks that are talked to at the same time.
const AT_ONCE: usize = 32;

/// Of those, what one tenant may have: its webhooks may all be slow, and the others are not to wait for that.
const OF_ONE_TENANT: usize = 8;

/// Webhooks of which is remembered when their turn was.
const REMEMBERED: usize = 10_000;

#[derive(Debug, Default)]
pub(super) struct Slots {
    /// Webhooks that are being talked to, and whose they are.
    taken: HashMap<String, Option<TenantId>>,
    /// When each had its turn, by a number that grows.
    turns: HashMap<String, u64>,
    turn: u64,
}

impl Slots {
    /// Takes slots for those of `due` that can be talked to now. Whose turn is longest ago comes first.
    pub(super) fn begin<T>(&mut self, mut due: Vec<(Webhook, T)>) -> Vec<(Webhook, T)> {
        due.sort_by_key(|(webhook, _)| self.turns.get(&webhook.id).copied());
        due.retain(|(webhook, _)| self.take(webhook));
        due
    }

    /// False where the webhook is talked to already, or has to wait until another one was.
    fn take(&mut self, webhook: &Webhook) -> bool {
        let of_tenant = self.taken.values().filter(|tenant| **tenant == webhook.tenant).count();
        let free = self.taken.len() < AT_ONCE && of_tenant < OF_ONE_TENANT;
        if !free || self.taken.contains_key(&webhook.id) {
            return false;
        }
        self.taken.insert(webhook.id.clone(), webhook.tenant.clone());
        if self.turns.len() >= REMEMBERED {
            self.turns.clear();
        }
        self.turn += 1;
        self.turns.insert(webhook.id.clone(), self.turn);
        true
    }

    pub(super) fn free(&mut self, id: &str) {
        self.taken.remove(id);
    }

    pub(super) fn clear(&mut self) {
        self.taken.clear();
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use belljar_engine::Secret;

    use super::*;

    fn webhook(tenant: &str, number: usize) -> Webhook {
        Webhook {
            id: format!("{tenant}-{number}"),
            tenant: Some(TenantId::parse(tenant).unwrap()),
            url: "https://example.com/".to_owned(),
            secret: Secret::new("secret".to_owned()),
            events: Vec::new(),
            created_at: SystemTime::UNIX_EPOCH,
            cursor: 0,
            attempts: 0,
            retry_at: None,
            error: None,
        }
    }

    #[test]
    fn many_webhooks_of_one_tenant_leave_room_for_others() {
        let mut slots = Slots::default();
        let begun = (0..100).filter(|number| slots.take(&webhook("one", *number))).count();
        assert_eq!(begun, OF_ONE_TENANT);
        assert!(slots.take(&webhook("two", 0)));
        assert!(!slots.take(&webhook("two", 0)), "one event after the other");
        slots.free("one-3");
        assert!(slots.take(&webhook("one", 50)));
        assert!(!slots.take(&webhook("one", 51)));
        for tenant in ["three", "four", "five"] {
            let begun = (0..100).filter(|number| slots.take(&webhook(tenant, *number))).count();
            assert!(begun <= OF_ONE_TENANT);
        }
        assert_eq!(slots.taken.len(), AT_ONCE);
        slots.clear();
        assert!(slots.take(&webhook("two", 0)));
    }

    #[test]
    fn where_there_are_more_than_slots_each_has_its_turn() {
        const MORE: usize = OF_ONE_TENANT + 3;
        // All of them have more to be told, always.
        let due = || (0..MORE).map(|number| (webhook("one", number), ())).collect::<Vec<_>>();
        let mut slots = Slots::default();
        let mut begun = slots.begin(due());
        assert_eq!(begun.len(), OF_ONE_TENANT);
        // Who began first ends first, and could go on at once.
        for _ in 0..4 * MORE {
            let last = begun.len() - OF_ONE_TENANT;
            slots.free(&begun[last].0.id);
            begun.extend(slots.begin(due()));
        }
        let all = |turns: &[(Webhook, ())]| {
            let ids: std::collections::HashSet<_> = turns.iter().map(|(w, ())| &w.id).collect();
            ids.len() == MORE
        };
        assert_eq!(begun.len(), OF_ONE_TENANT + 4 * MORE);
        assert!(begun.chunks_exact(MORE).all(all), "{begun:?}");
    }
}
