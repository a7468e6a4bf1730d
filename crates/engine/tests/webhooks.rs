//! Webhooks: each is told what it asked for, in order, until it is known to have heard.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::time::{Duration, SystemTime};

use belljar_codes::Code;
use belljar_engine::{
    CreateRequest, EventKind, NewWebhook, Scope, Secret, TenantId, Webhook, Webhooks,
};
use support::Setup;

fn hook(events: &[EventKind]) -> NewWebhook {
    NewWebhook {
        url: "https://example.test/hook".to_owned(),
        secret: None,
        events: events.to_vec(),
        tenant: None,
    }
}

async fn due(webhooks: &Webhooks, now: SystemTime) -> Vec<(String, u64)> {
    let due = webhooks.due(now).await.unwrap();
    let mut due: Vec<_> = due.into_iter().map(|(webhook, event)| (webhook.id, event.seq)).collect();
    due.sort_by_key(|(_, seq)| *seq);
    due
}

#[tokio::test]
async fn events_are_due_in_order_until_they_are_delivered() {
    let setup = Setup::new().await;
    let webhooks = setup.engine.webhooks();
    setup.create().await;
    let all = webhooks.create(hook(&[])).await.unwrap();
    let ready = webhooks.create(hook(&[EventKind::SandboxReady])).await.unwrap();
    assert_eq!(all.secret.expose().len(), 43);
    assert_ne!(all.secret, ready.secret);
    let now = SystemTime::now();
    assert_eq!(due(&webhooks, now).await, [], "what happened before is not told");
    setup.create().await;
    let expected = [(all.id.clone(), 3), (ready.id.clone(), 4)];
    assert_eq!(due(&webhooks, now).await, expected);
    assert_eq!(due(&webhooks, now).await, expected, "until it is delivered");
    webhooks.delivered(&all.id, 3).await.unwrap();
    webhooks.delivered(&ready.id, 4).await.unwrap();
    assert_eq!(due(&webhooks, now).await, [(all.id.clone(), 4)]);
    // A restart changes nothing.
    assert_eq!(due(&setup.second().await.webhooks(), now).await, [(all.id.clone(), 4)]);
    // An answer that comes late moves nothing back.
    webhooks.delivered(&all.id, 4).await.unwrap();
    webhooks.delivered(&all.id, 3).await.unwrap();
    assert_eq!(due(&webhooks, now).await, []);
}

#[tokio::test]
async fn failures_are_tried_again_later_or_given_up() {
    let setup = Setup::new().await;
    let webhooks = setup.engine.webhooks();
    let hook = webhooks.create(hook(&[])).await.unwrap();
    setup.create().await;
    let now = SystemTime::now();
    let later = now + Duration::from_secs(60);
    webhooks.failed(&hook.id, 1, "refused", Some(later)).await.unwrap();
    assert_eq!(due(&webhooks, now).await, []);
    assert_eq!(due(&webhooks, later).await, [(hook.id.clone(), 1)]);
    let Webhook { attempts, error, cursor, .. } = webhooks.get(&hook.id).await.unwrap();
    assert_eq!((attempts, error.as_deref(), cursor), (1, Some("refused"), 0));
    webhooks.failed(&hook.id, 1, "refused again", None).await.unwrap();
    assert_eq!(due(&webhooks, now).await, [(hook.id.clone(), 2)]);
    let Webhook { attempts, error, cursor, retry_at, .. } = webhooks.get(&hook.id).await.unwrap();
    assert_eq!((attempts, error.as_deref(), cursor), (0, Some("refused again"), 1));
    assert_eq!(retry_at, None);
}

#[tokio::test]
async fn what_is_not_for_a_webhook_is_passed_over() {
    let setup = Setup::new().await;
    let webhooks = setup.engine.webhooks();
    let hook = webhooks.create(hook(&[EventKind::SandboxPaused])).await.unwrap();
    for _ in 0..90 {
        let id = setup.create().await;
        setup.engine.destroy(id.as_str()).await.unwrap();
    }
    assert_eq!(due(&webhooks, SystemTime::now()).await, []);
    assert_eq!(webhooks.get(&hook.id).await.unwrap().cursor, 270);
}

#[tokio::test]
async fn a_tenant_hears_of_its_own() {
    let setup = Setup::new().await;
    let (one, two) = (setup.tenant("one").await, setup.tenant("two").await);
    let tenant = |name| Some(TenantId::parse(name).unwrap());
    let mine = one.webhooks().create(hook(&[])).await.unwrap();
    assert_eq!(mine.tenant, tenant("one"));
    let foreign = NewWebhook { tenant: tenant("two"), ..hook(&[]) };
    let error = one.webhooks().create(foreign).await.unwrap_err();
    assert_eq!(error.code(), Code::TenantNotFound);
    let theirs = two.webhooks().create(hook(&[])).await.unwrap();
    two.create(CreateRequest::default()).await.unwrap();
    let now = SystemTime::now();
    assert_eq!(due(&setup.engine.webhooks(), now).await, [(theirs.id.clone(), 1)]);
    assert_eq!(one.webhooks().list().await.unwrap(), std::slice::from_ref(&mine));
    let absent = one.webhooks().remove(&theirs.id).await.unwrap_err();
    assert_eq!(absent.code(), Code::WebhookNotFound);
    assert!(absent.remedy().unwrap().contains("belljar webhooks list"));
    assert_eq!(one.webhooks().due(now).await.unwrap_err().code(), Code::PermissionDenied);
    one.webhooks().remove(&mine.id).await.unwrap();
    assert_eq!(setup.engine.webhooks().list().await.unwrap().len(), 1);
    let id = setup.create().await;
    let caller = setup.engine.scoped(Scope::Sandbox { tenant: TenantId::default(), id });
    assert_eq!(caller.webhooks().list().await.unwrap_err().code(), Code::PermissionDenied);
}

#[tokio::test]
async fn addresses_and_secrets_are_checked() {
    let setup = Setup::new().await;
    for url in ["", "ftp://a/", "https://", "https:///x", "http://a b", "http://a\n", "//a"] {
        let new = NewWebhook { url: url.to_owned(), ..hook(&[]) };
        let error = setup.engine.webhooks().create(new).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{url:?}");
    }
    let with = |secret: &str| NewWebhook { secret: Some(Secret::new(secret)), ..hook(&[]) };
    let webhooks = setup.engine.webhooks();
    for short in ["", "fifteen letters"] {
        let error = webhooks.create(with(short)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{short:?}");
    }
    let given = "sixteen letters.";
    assert_eq!(webhooks.create(with(given)).await.unwrap().secret.expose(), given);
}

#[tokio::test]
async fn a_tenant_has_a_bounded_number_of_webhooks() {
    let setup = Setup::new().await;
    let (one, two) = (setup.tenant("one").await.webhooks(), setup.tenant("two").await.webhooks());
    let mut last = None;
    for _ in 0..100 {
        last = Some(one.create(hook(&[])).await.unwrap());
    }
    let error = one.create(hook(&[])).await.unwrap_err();
    assert_eq!(error.code(), Code::QuotaExceeded);
    assert!(error.remedy().is_some());
    assert_eq!(one.list().await.unwrap().len(), 100);
    // Those of others, and of the operator, are counted apart.
    two.create(hook(&[])).await.unwrap();
    setup.engine.webhooks().create(hook(&[])).await.unwrap();
    one.remove(&last.unwrap().id).await.unwrap();
    one.create(hook(&[])).await.unwrap();
}

#[tokio::test]
async fn it_is_known_whether_there_are_webhooks() {
    let setup = Setup::new().await;
    let webhooks = setup.engine.webhooks();
    assert!(!webhooks.any().await.unwrap());
    let one = webhooks.create(hook(&[])).await.unwrap();
    assert!(webhooks.any().await.unwrap());
    webhooks.remove(&one.id).await.unwrap();
    assert!(!webhooks.any().await.unwrap());
}
