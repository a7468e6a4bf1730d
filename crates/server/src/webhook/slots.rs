//! Who is talked to at the same time.

use std::collections::HashMap;

use belljar_engine::{TenantId, Webhook};

/// Webhooks that are talked to at the same time.
const AT_ONCE: usize = 32;

/// Of those, what one tenant may have: its webhooks may all be slow, and the others are not to wait for that.
const OF_ONE_TENANT: usize = 8;

/// Webhooks that are being talked to, and whose they are.
#[derive(Debug, Default)]
pub(super) struct Slots(HashMap<String, Option<TenantId>>);

impl Slots {
    /// False where the webhook is talked to already, or has to wait until another one was.
    pub(super) fn take(&mut self, webhook: &Webhook) -> bool {
        let of_tenant = self.0.values().filter(|tenant| **tenant == webhook.tenant).count();
        let free = self.0.len() < AT_ONCE && of_tenant < OF_ONE_TENANT;
        if !free || self.0.contains_key(&webhook.id) {
            return false;
        }
        self.0.insert(webhook.id.clone(), webhook.tenant.clone());
        true
    }

    pub(super) fn free(&mut self, id: &str) {
        self.0.remove(id);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
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
        assert_eq!(slots.0.len(), AT_ONCE);
        slots.clear();
        assert!(slots.take(&webhook("two", 0)));
    }
}
