//! Secrets: kept sealed, opened only for requests, each tenant's its own.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::os::unix::fs::PermissionsExt;

use belljar_codes::Code;
use belljar_engine::{Scope, TenantId};
use belljar_policy::document::{CommandSource, Source};
use belljar_policy::{SecretName, SecretValue};
use support::Setup;

fn name(text: &str) -> SecretName {
    SecretName::parse(text).unwrap()
}

fn value(text: &str) -> SecretValue {
    SecretValue::new(text).unwrap()
}

fn stored(name: &str) -> Source {
    Source::Store(name.to_owned())
}

#[tokio::test]
async fn a_secret_is_kept_sealed_and_rotated_and_removed() {
    let setup = Setup::new().await;
    let (secrets, sources) = (setup.engine.secrets(), setup.engine.secret_sources().unwrap());
    let tenant = TenantId::default();
    let missing = sources.get(&tenant, &stored("token")).await.unwrap_err();
    assert_eq!(missing.code(), Code::SecretNotFound);
    let first = secrets.set(None, &name("token"), &value("hunter2-one")).await.unwrap();
    assert_eq!(sources.get(&tenant, &stored("token")).await.unwrap(), value("hunter2-one"));
    let second = secrets.set(None, &name("token"), &value("hunter2-two")).await.unwrap();
    assert_eq!(first.created_at, second.created_at);
    assert_eq!(sources.get(&tenant, &stored("token")).await.unwrap(), value("hunter2-two"));
    // Another process on the same state directory opens it too, and no file says it.
    let second = setup.second().await.secret_sources().unwrap();
    assert_eq!(second.get(&tenant, &stored("token")).await.unwrap(), value("hunter2-two"));
    let root = setup.engine.state_dir();
    for entry in std::fs::read_dir(root).unwrap().map(Result::unwrap) {
        if entry.path().is_file() {
            let bytes = std::fs::read(entry.path()).unwrap();
            assert!(!bytes.windows(7).any(|bytes| bytes == b"hunter2"), "{:?}", entry.path());
        }
    }
    let mode = root.join("secrets.key").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    secrets.remove(None, &name("token")).await.unwrap();
    let gone = secrets.remove(None, &name("token")).await.unwrap_err();
    assert_eq!(gone.code(), Code::SecretNotFound);
    assert!(sources.get(&tenant, &stored("token")).await.is_err());
}

#[tokio::test]
async fn a_lost_key_is_missed_and_not_replaced() {
    let setup = Setup::new().await;
    let (secrets, sources) = (setup.engine.secrets(), setup.engine.secret_sources().unwrap());
    secrets.set(None, &name("a"), &value("x")).await.unwrap();
    std::fs::remove_file(setup.engine.state_dir().join("secrets.key")).unwrap();
    let lost = sources.get(&TenantId::default(), &stored("a")).await.unwrap_err();
    assert_eq!(lost.code(), Code::StateFailed);
    let lost = secrets.set(None, &name("b"), &value("x")).await.unwrap_err();
    assert_eq!(lost.code(), Code::StateFailed);
    secrets.remove(None, &name("a")).await.unwrap();
    secrets.set(None, &name("b"), &value("x")).await.unwrap();
}

#[tokio::test]
async fn tenants_do_not_see_each_other() {
    let setup = Setup::new().await;
    let tenant = |text| TenantId::parse(text).unwrap();
    for name in ["red", "blue"] {
        setup
            .engine
            .tenants()
            .create(tenant(name), belljar_engine::Quotas::default())
            .await
            .unwrap();
    }
    let of = |name| setup.engine.scoped(Scope::Tenant(tenant(name))).secrets();
    let (red, blue) = (of("red"), of("blue"));
    red.set(None, &name("token"), &value("red's")).await.unwrap();
    blue.set(None, &name("token"), &value("blue's")).await.unwrap();
    let refused = blue.set(Some(tenant("red")), &name("token"), &value("x")).await.unwrap_err();
    assert_eq!(refused.code(), Code::TenantNotFound);
    let sources = setup.engine.secret_sources().unwrap();
    assert_eq!(sources.get(&tenant("red"), &stored("token")).await.unwrap(), value("red's"));
    assert_eq!(red.list().await.unwrap().len(), 1);
    assert_eq!(setup.engine.secrets().list().await.unwrap().len(), 2);
    let scoped = setup.engine.scoped(Scope::Tenant(tenant("red")));
    assert!(scoped.secret_sources().is_err(), "only who sends requests opens secrets");
    // What a tenant leaves is not found by the next of its name.
    setup.engine.tenants().remove(&tenant("red")).await.unwrap();
    assert_eq!(setup.engine.secrets().list().await.unwrap().len(), 1);
}

#[tokio::test]
async fn sources_of_the_host() {
    let setup = Setup::new().await;
    let sources = setup.engine.secret_sources().unwrap();
    let tenant = TenantId::default();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    let file = Source::File(path.to_str().unwrap().to_owned());
    assert_eq!(sources.get(&tenant, &file).await.unwrap_err().code(), Code::SecretUnavailable);
    std::fs::write(&path, "one\r\n").unwrap();
    assert_eq!(sources.get(&tenant, &file).await.unwrap(), value("one"));
    std::fs::write(&path, "two").unwrap();
    assert_eq!(sources.get(&tenant, &file).await.unwrap(), value("two"), "rotation is seen");

    let count = directory.path().join("count");
    let line = format!("echo x >> {0}; wc -l < {0} | tr -d ' '", count.display());
    let command = |cache_seconds| {
        let argv = vec!["sh".to_owned(), "-c".to_owned(), line.clone()];
        Source::Command(CommandSource { argv, cache_seconds })
    };
    let cached = command(600);
    let (one, two) = tokio::join!(sources.get(&tenant, &cached), sources.get(&tenant, &cached));
    assert_eq!((one.unwrap(), two.unwrap()), (value("1"), value("1")), "one run answers both");
    assert_eq!(sources.get(&tenant, &command(0)).await.unwrap(), value("2"));

    let argv = ["sh", "-c", "echo hunter2; echo hunter2 >&2; exit 3"].map(str::to_owned).to_vec();
    let failing = Source::Command(CommandSource { argv, cache_seconds: 0 });
    let error = sources.get(&tenant, &failing).await.unwrap_err();
    assert_eq!(error.code(), Code::SecretUnavailable);
    assert!(!format!("{error}").contains("hunter2 "), "what it printed is not repeated");

    let variable = Source::Environment("BELLJAR_TEST_NO_SUCH_VARIABLE".to_owned());
    assert_eq!(sources.get(&tenant, &variable).await.unwrap_err().code(), Code::SecretUnavailable);
    let path = Source::Environment("PATH".to_owned());
    assert_eq!(sources.get(&tenant, &path).await.unwrap().expose(), std::env::var("PATH").unwrap());
}
