//! API keys open what they are for, and nothing once they are over.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::time::{Duration, SystemTime};

use belljar_codes::Code;
use belljar_engine::{CreateRequest, KeyScope, NewKey, Role, Scope, Secret, TenantId};
use support::Setup;

fn key(tenant: &str, role: Role) -> NewKey {
    NewKey {
        name: "of a test".to_owned(),
        tenant: TenantId::parse(tenant).unwrap(),
        role,
        scopes: Vec::new(),
        expires_at: None,
    }
}

#[tokio::test]
async fn a_key_opens_until_it_is_revoked() {
    let setup = Setup::new().await;
    let keys = setup.engine.keys();
    let (info, secret) = keys.create(key("default", Role::Admin)).await.unwrap();
    let text = secret.expose();
    assert_eq!(text.len(), 3 + 10 + 1 + 43);
    assert!(text.starts_with(&format!("bj_{}_", info.id)));
    let found = keys.verify(text).await.unwrap().unwrap();
    assert_eq!((&found.id, found.scope()), (&info.id, Scope::All));

    let mut changed = text.to_owned();
    changed.replace_range(text.len() - 1.., if text.ends_with('A') { "B" } else { "A" });
    let cut = &text[..text.len() - 1];
    for wrong in ["", "bj_", "bj__", cut, &changed, &text[3..], &format!("{text}x"), "bj_é_é"] {
        assert_eq!(keys.verify(wrong).await.unwrap(), None, "{wrong:?}");
    }
    // Another process knows it too, and the file has no trace of the secret itself.
    assert!(setup.second().await.keys().verify(text).await.unwrap().is_some());
    let mut stored = std::fs::read(setup.state().join("belljar.db")).unwrap();
    stored.extend(std::fs::read(setup.state().join("belljar.db-wal")).unwrap());
    let random = &text.as_bytes()[14..];
    assert!(!stored.windows(random.len()).any(|window| window == random));

    keys.revoke(&info.id).await.unwrap();
    keys.revoke(&info.id).await.unwrap();
    assert_eq!(keys.verify(text).await.unwrap(), None);
    assert!(keys.list().await.unwrap()[0].revoked_at.is_some());
    let absent = keys.revoke("nobody").await.unwrap_err();
    assert_eq!(absent.code(), Code::KeyNotFound);
    assert!(absent.remedy().unwrap().contains("belljar keys list"));
}

#[tokio::test]
async fn a_key_expires_and_its_use_is_noted() {
    let setup = Setup::new().await;
    let keys = setup.engine.keys();
    let now = SystemTime::now();
    let with = |expires_at| NewKey { expires_at, ..key("default", Role::Tenant) };
    let (_, over) = keys.create(with(Some(now - Duration::from_secs(1)))).await.unwrap();
    assert_eq!(keys.verify(over.expose()).await.unwrap(), None);
    let (good, secret) = keys.create(with(Some(now + Duration::from_secs(3600)))).await.unwrap();
    assert_eq!(good.last_used_at, None);
    assert_eq!(keys.verify(secret.expose()).await.unwrap().unwrap().last_used_at, None);
    let first = keys.verify(secret.expose()).await.unwrap().unwrap().last_used_at.unwrap();
    let again = keys.verify(secret.expose()).await.unwrap().unwrap().last_used_at.unwrap();
    assert_eq!(first, again, "noted once a minute");
}

#[tokio::test]
async fn keys_say_what_they_are_for() {
    let setup = Setup::new().await;
    let one = setup.tenant("one").await;
    let sandbox = one.create(CreateRequest::default()).await.unwrap();
    let keys = setup.engine.keys();
    let scopes = vec![KeyScope::Read, KeyScope::Exec];
    let new = NewKey { scopes, ..key("one", Role::Sandbox(sandbox.id.clone())) };
    let (_, secret) = keys.create(new).await.unwrap();
    let found = keys.verify(secret.expose()).await.unwrap().unwrap();
    let tenant = TenantId::parse("one").unwrap();
    assert_eq!(found.scope(), Scope::Sandbox { tenant, id: sandbox.id.clone() });
    let allowed: Vec<_> = KeyScope::ALL.into_iter().filter(|scope| found.allows(*scope)).collect();
    assert_eq!(allowed, [KeyScope::Read, KeyScope::Exec]);

    let refused = async |new: NewKey| keys.create(new).await.unwrap_err().code();
    assert_eq!(refused(key("nobody", Role::Tenant)).await, Code::TenantNotFound);
    let elsewhere = key("default", Role::Sandbox(sandbox.id.clone()));
    assert_eq!(refused(elsewhere).await, Code::SandboxNotFound);
    let name = "a\nb".to_owned();
    assert_eq!(refused(NewKey { name, ..key("one", Role::Tenant) }).await, Code::InvalidName);
}

#[tokio::test]
async fn a_tenant_manages_its_own_keys_and_no_others() {
    let setup = Setup::new().await;
    let (one, two) = (setup.tenant("one").await, setup.tenant("two").await);
    let sandbox = two.create(CreateRequest::default()).await.unwrap();
    let (admin, _) = setup.engine.keys().create(key("one", Role::Admin)).await.unwrap();
    let (theirs, _) = two.keys().create(key("two", Role::Tenant)).await.unwrap();
    let (mine, secret) = one.keys().create(key("one", Role::Tenant)).await.unwrap();
    let ids: Vec<_> = one.keys().list().await.unwrap().into_iter().map(|key| key.id).collect();
    assert_eq!(ids, std::slice::from_ref(&mine.id));
    for id in [&admin.id, &theirs.id] {
        assert_eq!(one.keys().revoke(id).await.unwrap_err().code(), Code::KeyNotFound);
    }
    let refused = async |new: NewKey| one.keys().create(new).await.unwrap_err().code();
    assert_eq!(refused(key("one", Role::Admin)).await, Code::PermissionDenied);
    assert_eq!(refused(key("two", Role::Tenant)).await, Code::TenantNotFound);
    assert_eq!(refused(key("one", Role::Sandbox(sandbox.id.clone()))).await, Code::SandboxNotFound);
    let scope = Scope::Sandbox { tenant: sandbox.tenant.clone(), id: sandbox.id.clone() };
    let caller = setup.engine.scoped(scope).keys();
    assert_eq!(caller.list().await.unwrap_err().code(), Code::PermissionDenied);

    // With the tenant its keys go.
    let tenant = TenantId::parse("one").unwrap();
    setup.engine.tenants().remove(&tenant).await.unwrap();
    assert_eq!(setup.engine.keys().verify(secret.expose()).await.unwrap(), None);
}

#[tokio::test]
async fn secrets_of_ones_own_are_keys_too() {
    let setup = Setup::new().await;
    let keys = setup.engine.keys();
    let secret = Secret::new("correct-horse-battery");
    let first = keys.add(&secret, key("default", Role::Tenant)).await.unwrap();
    let second = keys.add(&secret, key("default", Role::Admin)).await.unwrap();
    assert_eq!((&first.id, &second.role), (&second.id, &Role::Admin));
    assert_eq!(keys.list().await.unwrap().len(), 1);
    let found = keys.verify(secret.expose()).await.unwrap().unwrap();
    assert_eq!((found.id, found.role), (first.id.clone(), Role::Admin));
    assert_eq!(keys.verify("correct-horse-batterz").await.unwrap(), None);
    for bad in ["short", "with a space in between", &"x".repeat(513)] {
        let error = keys.add(&Secret::new(bad), key("default", Role::Tenant)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{bad}");
        assert!(!error.to_string().contains(bad));
    }
    keys.revoke(&first.id).await.unwrap();
    assert_eq!(keys.verify(secret.expose()).await.unwrap(), None);
    let error = keys.add(&secret, key("default", Role::Tenant)).await.unwrap_err();
    assert_eq!(error.code(), Code::InvalidArgument, "a revoked secret stays revoked");
}

#[tokio::test]
async fn a_tenant_has_a_bounded_number_of_keys() {
    let setup = Setup::new().await;
    setup.tenant("one").await;
    let keys = setup.engine.keys();
    let own = Secret::new("a secret that nobody guesses".replace(' ', "-"));
    keys.add(&own, key("one", Role::Tenant)).await.unwrap();
    let database = rusqlite::Connection::open(setup.state().join("belljar.db")).unwrap();
    let many =
        "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 9998)
                INSERT INTO keys (id, name, tenant, role, scopes, hash, own, created_at)
                SELECT 'k' || n, 'many', 'one', 'tenant', '', zeroblob(32), 0, n FROM number";
    database.execute(many, []).unwrap();
    keys.create(key("one", Role::Tenant)).await.unwrap();
    let error = keys.create(key("one", Role::Tenant)).await.unwrap_err();
    assert_eq!(error.code(), Code::QuotaExceeded);
    assert!(error.remedy().unwrap().contains("revoke"));
    let another = Secret::new("another-one-that-nobody-guesses".to_owned());
    let error = keys.add(&another, key("one", Role::Tenant)).await.unwrap_err();
    assert_eq!(error.code(), Code::QuotaExceeded);
    // One that is there already can be changed, other tenants have room of their own, and so has whoever administers.
    keys.add(&own, key("one", Role::Tenant)).await.unwrap();
    setup.tenant("two").await;
    keys.create(key("two", Role::Tenant)).await.unwrap();
    keys.create(key("one", Role::Admin)).await.unwrap();
    // What opens nothing any more takes no room, up to a bound of its own.
    let revoke = "UPDATE keys SET revoked_at = 1 WHERE name = 'many'";
    database.execute(revoke, []).unwrap();
    let (made, _) = keys.create(key("one", Role::Tenant)).await.unwrap();
    keys.revoke(&made.id).await.unwrap();
    let more = many.replace("9998", "40000").replace("'k'", "'l'");
    database.execute(&more, []).unwrap();
    database.execute(revoke, []).unwrap();
    let error = keys.create(key("one", Role::Tenant)).await.unwrap_err();
    assert_eq!(error.code(), Code::QuotaExceeded);
    assert!(error.remedy().unwrap().contains("forgotten"));
    keys.create(key("one", Role::Admin)).await.unwrap();
}

#[tokio::test]
async fn keys_that_were_revoked_keep_nobody_from_new_ones() {
    let setup = Setup::new().await;
    let keys = setup.engine.keys();
    let database = rusqlite::Connection::open(setup.state().join("belljar.db")).unwrap();
    let many =
        "WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < 20000)
                INSERT INTO keys (id, name, tenant, role, scopes, hash, own, created_at, expires_at)
                SELECT 'k' || n, 'many', 'default', 'tenant', '', zeroblob(32), 0, n, 2 FROM number";
    database.execute(many, []).unwrap();
    keys.create(key("default", Role::Tenant)).await.unwrap();
}
