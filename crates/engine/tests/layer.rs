//! The workspace layer: shown, applied, thrown away.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::Ordering;

use belljar_codes::Code;
use belljar_engine::{CreateRequest, LayerChange, SandboxId, WorkspaceRequest};
use belljar_policy::WorkspaceMode;
use belljar_protocol::v1::Kind;
use support::Setup;
use support::agent::layer_entry;

async fn overlay(setup: &Setup, workspace: &Path) -> SandboxId {
    let workspace = WorkspaceRequest { path: workspace.to_owned(), mode: WorkspaceMode::Overlay };
    let request = CreateRequest { workspace: Some(workspace), ..CreateRequest::default() };
    setup.engine.create(request).await.unwrap().id
}

fn words(changes: &[LayerChange]) -> Vec<String> {
    changes.iter().map(|c| format!("{} {}", c.change.as_str(), c.path.display())).collect()
}

fn fill(setup: &Setup, id: &SandboxId) {
    let entries = [
        layer_entry("dir", Kind::Directory, b""),
        layer_entry("dir/new", Kind::File, &vec![b'n'; 300_000]),
        layer_entry("gone", Kind::Whiteout, b""),
        layer_entry("kept", Kind::File, b"changed"),
        layer_entry("pipe", Kind::Fifo, b""),
    ];
    *setup.backend.agent(id).layer.lock().unwrap() = entries.into();
}

#[tokio::test]
async fn changes_are_shown_then_applied() {
    let setup = Setup::new().await;
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("kept"), "old").unwrap();
    std::fs::create_dir(workspace.path().join("gone")).unwrap();
    std::fs::write(workspace.path().join("gone/x"), "old").unwrap();
    let id = overlay(&setup, workspace.path()).await;
    assert_eq!(setup.engine.diff(id.as_str()).await.unwrap(), []);
    fill(&setup, &id);

    let expected = ["added dir", "added dir/new", "removed gone", "modified kept", "skipped pipe"];
    assert_eq!(words(&setup.engine.diff(id.as_str()).await.unwrap()), expected);
    assert_eq!(std::fs::read(workspace.path().join("kept")).unwrap(), b"old");

    assert_eq!(words(&setup.engine.apply(id.as_str()).await.unwrap()), expected);
    assert_eq!(support::tree(workspace.path()), ["dir", "dir/new", "kept"]);
    assert_eq!(std::fs::read(workspace.path().join("kept")).unwrap(), b"changed");
    let new = workspace.path().join("dir/new");
    assert_eq!(std::fs::read(&new).unwrap(), vec![b'n'; 300_000]);
    assert_eq!(std::fs::metadata(&new).unwrap().permissions().mode() & 0o777, 0o644);
    assert_eq!(setup.backend.resets.load(Ordering::Relaxed), 1);
    assert_eq!(setup.engine.diff(id.as_str()).await.unwrap(), []);
}

#[tokio::test]
async fn discarding_touches_nothing() {
    let setup = Setup::new().await;
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("kept"), "old").unwrap();
    let id = overlay(&setup, workspace.path()).await;
    fill(&setup, &id);
    let lost = setup.engine.discard(id.as_str()).await.unwrap();
    assert_eq!(lost.len(), 4);
    assert_eq!(support::tree(workspace.path()), ["kept"]);
    assert_eq!(setup.engine.diff(id.as_str()).await.unwrap(), []);
}

#[tokio::test]
async fn a_conflict_writes_nothing() {
    let setup = Setup::new().await;
    let workspace = tempfile::tempdir().unwrap();
    std::fs::write(workspace.path().join("kept"), "old").unwrap();
    let id = overlay(&setup, workspace.path()).await;
    fill(&setup, &id);
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    let file = std::fs::File::options().write(true).open(workspace.path().join("kept")).unwrap();
    file.set_modified(later).unwrap();
    let error = setup.engine.apply(id.as_str()).await.unwrap_err();
    assert_eq!(error.code(), Code::LayerConflict);
    assert!(error.to_string().contains("`kept`"));
    assert_eq!(support::tree(workspace.path()), ["kept"]);
    assert_eq!(setup.backend.resets.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn a_layer_cannot_reach_outside() {
    let setup = Setup::new().await;
    let outside = tempfile::tempdir().unwrap();
    let workspace = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), workspace.path().join("out")).unwrap();
    let id = overlay(&setup, workspace.path()).await;
    for path in ["../escape", "/etc/escape", "out/escape", "a/../../escape", "./x"] {
        *setup.backend.agent(&id).layer.lock().unwrap() =
            [layer_entry(path, Kind::File, b"escaped")].into();
        let error = setup.engine.apply(id.as_str()).await.unwrap_err();
        assert!(matches!(error.code(), Code::AgentFailed | Code::LayerConflict), "{path}: {error}");
    }
    assert_eq!(support::tree(outside.path()), Vec::<String>::new());
    assert_eq!(support::tree(workspace.path()).len(), 1);
}

#[tokio::test]
async fn a_workspace_that_was_replaced_is_not_touched() {
    let setup = Setup::new().await;
    let parent = tempfile::tempdir().unwrap();
    let workspace = parent.path().join("work");
    std::fs::create_dir(&workspace).unwrap();
    let id = overlay(&setup, &workspace).await;
    fill(&setup, &id);
    std::fs::rename(&workspace, parent.path().join("aside")).unwrap();
    std::fs::create_dir(&workspace).unwrap();
    let error = setup.engine.apply(id.as_str()).await.unwrap_err();
    assert_eq!(error.code(), Code::LayerConflict);
    assert_eq!(support::tree(parent.path()), ["aside", "work"]);
}

#[tokio::test]
async fn without_an_overlay_there_is_no_layer() {
    let setup = Setup::new().await;
    let id = setup.create().await;
    for result in [
        setup.engine.diff(id.as_str()).await,
        setup.engine.apply(id.as_str()).await,
        setup.engine.discard(id.as_str()).await,
    ] {
        assert_eq!(result.unwrap_err().code(), Code::LayerNotFound);
    }
}
