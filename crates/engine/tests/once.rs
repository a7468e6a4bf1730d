//! Idempotency keys: what is asked for twice is done once.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use belljar_codes::Code;
use belljar_engine::{
    CreateRequest, Engine, ExecRequest, ProcessQuery, SandboxId, SandboxQuery, SandboxState, Scope,
    TenantId,
};
use support::{Setup, exec};

fn keyed(key: &str) -> CreateRequest {
    CreateRequest { idempotency_key: Some(key.to_owned()), ..CreateRequest::default() }
}

fn keyed_exec(key: &str, words: &[&str]) -> ExecRequest {
    ExecRequest { idempotency_key: Some(key.to_owned()), ..exec(words) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sandbox_is_created_once_however_many_ask() {
    let setup = Setup::new().await;
    let second = setup.second().await;
    let tasks: Vec<_> = (0..16)
        .map(|index| {
            let engine = if index % 2 == 0 { setup.engine.clone() } else { second.clone() };
            tokio::spawn(async move { engine.create(keyed("k")).await.unwrap() })
        })
        .collect();
    let mut ids = BTreeSet::new();
    for task in tasks {
        let sandbox = task.await.unwrap();
        assert_eq!(sandbox.state, SandboxState::Ready);
        ids.insert(sandbox.id);
    }
    assert_eq!(ids.len(), 1);
    assert_eq!(setup.backend.objects().len(), 1);
    let other = setup.engine.create(keyed("other")).await.unwrap();
    assert!(!ids.contains(&other.id));
}

#[tokio::test]
async fn a_key_means_one_request_of_one_tenant() {
    let setup = Setup::new().await;
    let first = setup.engine.create(keyed("k")).await.unwrap();
    let different = CreateRequest { writable: true, ..keyed("k") };
    let error = setup.engine.create(different).await.unwrap_err();
    assert_eq!(error.code(), Code::IdempotencyConflict);
    let tenant = setup.tenant("one").await;
    let theirs = tenant.create(keyed("k")).await.unwrap();
    assert_ne!(theirs.id, first.id);
    for bad in ["", "a b", "a\n", "é", &"x".repeat(256)] {
        let error = setup.engine.create(keyed(bad)).await.unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument, "{bad:?}");
    }
    // Also when it has ended since: the answer is the same sandbox, not a new one.
    setup.engine.destroy(first.id.as_str()).await.unwrap();
    let again = setup.engine.create(keyed("k")).await.unwrap();
    assert_eq!((again.id, again.state), (first.id, SandboxState::Destroyed));
}

#[tokio::test]
async fn who_has_one_sandbox_has_keys_of_its_own() {
    let setup = Setup::new().await;
    let (mine, other) = (setup.create().await, setup.create().await);
    let scope = Scope::Sandbox { tenant: TenantId::default(), id: mine.clone() };
    let inside = setup.engine.scoped(scope);
    let start = async |engine: &Engine, id: &SandboxId| {
        engine.start(id.as_str(), keyed_exec("k", &["true"])).await.unwrap().process.id
    };
    let theirs = start(&setup.engine, &other).await;
    let own = start(&inside, &mine).await;
    assert_ne!(own, theirs);
    assert_eq!(start(&inside, &mine).await, own);
    assert_eq!(start(&setup.engine, &other).await, theirs);
    // Nor does anybody else's key come to be the same, however it is written.
    for key in [format!("{mine}:k"), format!("{mine}k")] {
        let request = keyed_exec(&key, &["true"]);
        assert!(setup.engine.start(mine.as_str(), request).await.unwrap().created, "{key}");
    }
    let error = inside.start(mine.as_str(), keyed_exec("k", &["echo"])).await.unwrap_err();
    assert!(error.to_string().contains("idempotency key `k` was used"), "{error}");
    // Of keys that can be used it has as many as everybody, and is told of its own where one cannot.
    for engine in [&inside, &setup.engine] {
        let start = async |key: &str| {
            let started = engine.start(mine.as_str(), keyed_exec(key, &["true"])).await;
            started.map(|started| started.process.id)
        };
        let long = "x".repeat(255);
        assert_eq!(start(&long).await.unwrap(), start(&long).await.unwrap());
        for bad in ["", "a b", &"x".repeat(256)] {
            let error = start(bad).await.unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{bad}");
            assert!(!error.to_string().contains(mine.as_str()), "{error}");
        }
    }
}

#[tokio::test]
async fn a_failed_creation_gives_its_key_back() {
    let setup = Setup::new().await;
    setup.backend.fail_start.store(true, Ordering::Relaxed);
    let error = setup.engine.create(keyed("k")).await.unwrap_err();
    assert_eq!(error.code(), Code::StartFailed);
    setup.backend.fail_start.store(false, Ordering::Relaxed);
    let sandbox = setup.engine.create(keyed("k")).await.unwrap();
    assert_eq!(setup.engine.create(keyed("k")).await.unwrap().id, sandbox.id);
    let page = setup.engine.list(&SandboxQuery::default()).await.unwrap();
    assert_eq!(page.items.len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_started_once_however_many_ask() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (engine, id) = (setup.engine.clone(), id.clone());
            tokio::spawn(async move {
                engine.start(id.as_str(), keyed_exec("k", &["echo", "x"])).await.unwrap()
            })
        })
        .collect();
    let (mut ids, mut created) = (BTreeSet::new(), 0);
    for task in tasks {
        let started = task.await.unwrap();
        created += usize::from(started.created);
        ids.insert(started.process.id);
    }
    assert_eq!((ids.len(), created), (1, 1));
    let page = setup.engine.processes(&ProcessQuery::default()).await.unwrap();
    assert_eq!(page.items.len(), 1);
    setup.engine.wait(ids.first().unwrap(), None).await.unwrap();
    let logs = std::fs::read_dir(setup.state().join("processes")).unwrap().count();
    assert_eq!(logs, 1);

    let error = setup.engine.start(id.as_str(), keyed_exec("k", &["true"])).await.unwrap_err();
    assert_eq!(error.code(), Code::IdempotencyConflict);
    // The same key may be used for a sandbox.
    setup.engine.create(keyed("k")).await.unwrap();
    setup.engine.destroy(id.as_str()).await.unwrap();
    let known = setup.engine.start(id.as_str(), keyed_exec("k", &["echo", "x"])).await.unwrap();
    assert!(ids.contains(&known.process.id));
}

#[tokio::test]
async fn a_command_that_never_ran_gives_its_key_back() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    for _ in 0..2 {
        let error =
            setup.engine.start(id.as_str(), keyed_exec("k", &["missing"])).await.unwrap_err();
        assert_eq!(error.code(), Code::ProgramNotFound);
    }
    assert!(setup.engine.start(id.as_str(), keyed_exec("k", &["true"])).await.unwrap().created);
}
