//! Dying at every fault point, for real, and finding everything in order afterwards.
//!
//! A child process (this same binary) runs one life of a sandbox with `BELLJAR_FAULT` set and kills itself there. The
//! parent then opens the same state directory, as the next command would.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::Ordering;

use belljar_engine::{
    CreateRequest, ProcessQuery, SandboxQuery, SandboxState, SessionRequest, WorkspaceRequest,
    fault,
};
use belljar_policy::{SandboxName, WorkspaceMode};
use support::{FakeBackend, exec, open};

const DIRECTORY: &str = "BELLJAR_TEST_DIRECTORY";
const LIFE: &str = "BELLJAR_TEST_LIFE";

/// Not a test by itself: what the child does.
#[tokio::test]
async fn child() {
    let (Ok(directory), Ok(life)) = (std::env::var(DIRECTORY), std::env::var(LIFE)) else { return };
    let directory = Path::new(&directory);
    let backend = FakeBackend::new(&directory.join("objects"));
    let engine = open(&directory.join("state"), &backend).await;
    let request = CreateRequest {
        workspace: Some(WorkspaceRequest {
            path: directory.join("work"),
            mode: WorkspaceMode::Overlay,
        }),
        ensure: vec!["echo once".to_owned()],
        ..CreateRequest::default()
    };
    let session = match life.as_str() {
        "ephemeral" => SessionRequest::Ephemeral(request),
        "automatic" => SessionRequest::Automatic(request),
        _ => {
            let name = Some(SandboxName::parse("web").unwrap());
            SessionRequest::Named(CreateRequest { name, ..request })
        }
    };
    let session = engine.session(session).await.unwrap();
    let id = session.sandbox.id.clone();
    engine.exec(&id, exec(&["echo", "hello"])).await.unwrap().wait().await.unwrap();
    engine.pause(id.as_str()).await.unwrap();
    engine.resume(id.as_str()).await.unwrap();
    engine.apply(id.as_str()).await.unwrap();
    engine.destroy(id.as_str()).await.unwrap();
}

fn die_at(directory: &Path, life: &str, point: &str) {
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture"])
        .env(DIRECTORY, directory)
        .env(LIFE, life)
        .env(fault::VARIABLE, point)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&status.stderr);
    assert_eq!(status.status.signal(), Some(9), "{life} did not die at {point}: {text}");
}

/// The fake's agents die with their process, as the sandboxes of a machine that lost power do.
fn mark_dead(directory: &Path) {
    for entry in std::fs::read_dir(directory.join("objects")).unwrap() {
        let _ = std::fs::remove_file(entry.unwrap().path().join("alive"));
    }
}

async fn check(life: &str, point: &str) {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("work")).unwrap();
    die_at(directory.path(), life, point);

    // The next command, whichever it is.
    let backend = FakeBackend::new(&directory.path().join("objects"));
    let engine = open(&directory.path().join("state"), &backend).await;
    let sandboxes = engine.list(&SandboxQuery::default()).await.unwrap().items;
    let is_usable = life != "ephemeral"
        && fault::POINTS.iter().position(|name| *name == point)
            >= fault::POINTS.iter().position(|name| *name == "create.ready")
        && !point.starts_with("destroy.");
    if is_usable {
        assert_eq!(sandboxes.len(), 1, "{life} {point}");
        // One that may stand still is on record as such until it certainly goes on.
        let paused = point.starts_with("pause.") || point.starts_with("resume.");
        let state = if paused { SandboxState::Paused } else { SandboxState::Ready };
        assert_eq!(sandboxes[0].state, state, "{life} {point}");
        assert_eq!(backend.objects(), [sandboxes[0].id.as_str()], "{life} {point}");
        mark_dead(directory.path());
        engine.list(&SandboxQuery::default()).await.unwrap();
    } else {
        assert_eq!(sandboxes, [], "{life} {point}");
    }
    assert_eq!(backend.objects(), Vec::<String>::new(), "{life} {point}");
    assert_eq!(engine.leaks(false).await.unwrap().found, [], "{life} {point}");
    for process in engine.processes(&ProcessQuery::default()).await.unwrap().items {
        assert!(process.finished_at.is_some(), "{life} {point}: {process:?}");
    }
    // Only what is meant to stay: the database, empty places, logs.
    engine.close().await;
    let left: Vec<_> = support::tree(&directory.path().join("state"))
        .into_iter()
        .filter(|path| {
            // Logs stay for a week, the audit log for good, and what probes found as long as the host is the same.
            let kept = ["belljar.db", "processes/", "probes.", "audit."];
            !kept.iter().any(|kept| path.starts_with(kept))
        })
        .collect();
    assert_eq!(
        left,
        ["processes", "sandboxes", "sessions", "templates", "trash"],
        "{life} {point}"
    );

    // And the name is free again.
    let engine = open(&directory.path().join("state"), &backend).await;
    let name = Some(SandboxName::parse("web").unwrap());
    let request = CreateRequest { name, ..CreateRequest::default() };
    let session = engine.session(SessionRequest::Named(request)).await.unwrap();
    assert!(session.created, "{life} {point}");
}

#[tokio::test]
async fn a_named_life_survives_death_everywhere() {
    for point in fault::POINTS {
        check("named", point).await;
    }
}

#[tokio::test]
async fn an_ephemeral_life_survives_death_everywhere() {
    for point in fault::POINTS {
        check("ephemeral", point).await;
    }
}

#[tokio::test]
async fn an_automatic_life_survives_death_everywhere() {
    for point in fault::POINTS {
        check("automatic", point).await;
    }
}

#[tokio::test]
async fn a_creation_that_was_interrupted_says_so() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("work")).unwrap();
    die_at(directory.path(), "named", "create.starting");
    let backend = FakeBackend::new(&directory.path().join("objects"));
    // Whoever undoes it is interrupted, too.
    backend.fail_stop.store(true, Ordering::Relaxed);
    open(&directory.path().join("state"), &backend).await.close().await;
    assert!(!backend.fail_stop.load(Ordering::Relaxed));
    let engine = open(&directory.path().join("state"), &backend).await;
    let states = vec![SandboxState::Failed];
    let failed = engine.list(&SandboxQuery { states, ..Default::default() }).await.unwrap().items;
    assert_eq!(failed.len(), 1);
    assert_eq!(
        failed[0].failure.as_deref(),
        Some(
            "the process that was creating it ended before it was ready; what it had made was removed, so create it again"
        )
    );
}
