//! Sessions: automatic, named, ephemeral; ensured commands.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use belljar_codes::Code;
use belljar_engine::{CreateRequest, ProcessQuery, SessionRequest, WorkspaceRequest};
use belljar_policy::{SandboxName, WorkspaceMode};
use support::Setup;

fn automatic() -> SessionRequest {
    SessionRequest::Automatic(CreateRequest::default())
}

fn named(name: &str) -> CreateRequest {
    CreateRequest { name: Some(SandboxName::parse(name).unwrap()), ..CreateRequest::default() }
}

#[tokio::test]
async fn runs_of_the_same_shape_share_a_session() {
    let setup = Setup::new().await;
    let first = setup.engine.session(automatic()).await.unwrap();
    assert!(first.created && !first.overflow && !first.destroy_after);
    let name = first.name.clone().unwrap();
    assert!(name.starts_with("auto-"));
    let id = first.sandbox.id.clone();
    first.end().await.unwrap();

    let second = setup.engine.session(automatic()).await.unwrap();
    assert!(!second.created);
    assert_eq!((&second.sandbox.id, second.name.as_deref()), (&id, Some(name.as_str())));
    drop(second);

    let directory = tempfile::tempdir().unwrap();
    let other = CreateRequest {
        workspace: Some(WorkspaceRequest {
            path: directory.path().to_owned(),
            mode: WorkspaceMode::Bind,
        }),
        ..CreateRequest::default()
    };
    let third = setup.engine.session(SessionRequest::Automatic(other)).await.unwrap();
    assert!(third.created);
    assert_ne!(third.sandbox.id, id);
}

#[tokio::test]
async fn a_busy_session_overflows() {
    let setup = Setup::new().await;
    let other = setup.second().await;
    let first = setup.engine.session(automatic()).await.unwrap();
    let second = other.session(automatic()).await.unwrap();
    assert!(second.overflow && second.created && second.destroy_after);
    assert_ne!(first.sandbox.id, second.sandbox.id);
    assert_eq!(setup.backend.objects().len(), 2);
    second.end().await.unwrap();
    assert_eq!(setup.backend.objects(), [first.sandbox.id.as_str()]);
    first.end().await.unwrap();
    let third = other.session(automatic()).await.unwrap();
    assert!(!third.overflow && !third.created);
}

#[tokio::test]
async fn a_dropped_session_ends_in_the_background() {
    let setup = Setup::new().await;
    let session =
        setup.engine.session(SessionRequest::Ephemeral(CreateRequest::default())).await.unwrap();
    assert!(session.sandbox.ephemeral);
    drop(session);
    setup.engine.clone().close().await;
    assert_eq!(setup.backend.objects(), Vec::<String>::new());
    assert_eq!(setup.engine.leaks(false).await.unwrap().found, []);
}

#[tokio::test]
async fn named_sessions_are_made_once_however_many_ask() {
    let setup = Setup::new().await;
    let tasks: Vec<_> = (0..8)
        .map(|_| {
            let engine = setup.engine.clone();
            tokio::spawn(async move {
                engine
                    .session(SessionRequest::Named(named("web")))
                    .await
                    .unwrap()
                    .sandbox
                    .id
                    .clone()
            })
        })
        .collect();
    let mut ids = Vec::new();
    for task in tasks {
        ids.push(task.await.unwrap());
    }
    ids.dedup();
    assert_eq!(ids.len(), 1);
    assert_eq!(setup.backend.objects().len(), 1);
    let existing = setup.engine.session(SessionRequest::Existing("web".to_owned())).await.unwrap();
    assert_eq!(existing.sandbox.id, ids[0]);
    let none = setup.engine.session(SessionRequest::Existing("none".to_owned())).await;
    assert_eq!(none.unwrap_err().code(), Code::SandboxNotFound);
}

#[tokio::test]
async fn a_session_whose_agent_died_is_made_anew() {
    let setup = Setup::new().await;
    let first = setup.engine.session(SessionRequest::Named(named("web"))).await.unwrap();
    setup.backend.kill_agent(&first.sandbox.id);
    let other = setup.second().await;
    let second = other.session(SessionRequest::Named(named("web"))).await.unwrap();
    assert!(second.created);
    assert_ne!(second.sandbox.id, first.sandbox.id);
    assert_eq!(setup.backend.objects(), [second.sandbox.id.as_str()]);
}

#[tokio::test]
async fn ensured_commands_run_once_in_a_sandbox() {
    let setup = Setup::new().await;
    let request = |ensure: &[&str]| {
        let ensure = ensure.iter().map(|line| (*line).to_owned()).collect();
        SessionRequest::Named(CreateRequest { ensure, ..named("web") })
    };
    let count =
        async || setup.engine.processes(&ProcessQuery::default()).await.unwrap().items.len();
    setup.engine.session(request(&["echo one"])).await.unwrap();
    assert_eq!(count().await, 1);
    setup.engine.session(request(&["echo one", "echo two"])).await.unwrap();
    assert_eq!(count().await, 2);

    let error = setup.engine.session(request(&["warn broken", "echo never"])).await.unwrap_err();
    assert_eq!(error.code(), Code::EnsureFailed);
    assert_eq!(error.to_string(), "`warn broken` ended with 3 (exited): broken");
    assert_eq!(count().await, 3);
    assert_eq!(setup.backend.objects().len(), 1, "the sandbox stays");
    setup.engine.session(request(&["warn broken"])).await.unwrap_err();
    assert_eq!(count().await, 4, "a failed command runs again");
}
