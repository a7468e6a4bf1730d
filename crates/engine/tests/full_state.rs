//! A state directory whose disk is full: clear errors, nothing lost, and all is well when there is room again.
//!
//! The disk is a small tmpfs in a mount namespace of a child process, which needs root; without it nothing is tested.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod support;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use belljar_codes::Code;
use belljar_engine::{
    CreateRequest, Engine, EngineOptions, Error, ProcessStatus, Reason, SandboxId, SandboxQuery,
    SandboxState,
};
use belljar_policy::SandboxName;
use support::{FakeBackend, exec, open};

const DISK: &str = "BELLJAR_TEST_FULL_DISK";

#[test]
fn a_full_disk_is_survived() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = "mount -t tmpfs -o size=2m none \"$1\" && exec \"$2\" --exact child --nocapture";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        .arg(directory.path())
        .arg(std::env::current_exe().unwrap())
        .env(DISK, directory.path())
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

/// Does nothing unless the test above started it.
#[tokio::test]
async fn child() {
    let Some(disk) = std::env::var_os(DISK).map(PathBuf::from) else { return };
    let objects = tempfile::tempdir().unwrap();
    let backend = FakeBackend::new(objects.path());
    let state = disk.join("state");
    let engine = open(&state, &backend).await;
    let sandbox = engine.create(CreateRequest::default()).await.unwrap();
    let running = engine.exec(&sandbox.id, exec(&["hang"])).await.unwrap();
    let running_id = running.id().clone();

    let ballast = disk.join("ballast");
    fill(&ballast);
    // The log may still have room that was used before; then it is used up.
    let error = loop {
        match engine.create(CreateRequest::default()).await {
            Ok(_) => fill(&ballast),
            Err(error) => break error,
        }
    };
    check(&error);
    let before = backend.objects();
    for _ in 0..5 {
        check(&engine.create(CreateRequest::default()).await.unwrap_err());
        check(&engine.exec(&sandbox.id, exec(&["true"])).await.unwrap_err());
    }
    assert_eq!(backend.objects(), before, "nothing was made that is not recorded");
    assert_eq!(engine.inspect(sandbox.id.as_str()).await.unwrap().state, SandboxState::Ready);
    let listed = engine.list(&SandboxQuery::default()).await.unwrap().items;
    assert!(listed.iter().any(|found| found.id == sandbox.id));
    // What ends meanwhile ends for its reader, and for the record later.
    running.signal(9).await.unwrap();
    let ended = tokio::time::timeout(Duration::from_secs(30), running.wait()).await.unwrap();
    assert_eq!(ended.unwrap().exit.reason, Reason::Signalled);
    assert_eq!(engine.process(&running_id).await.unwrap().finished_at, None);

    std::fs::remove_file(&ballast).unwrap();
    let recorded = tokio::time::timeout(
        Duration::from_secs(30),
        engine.wait(&running_id, Some(Duration::from_secs(20))),
    );
    assert_eq!(recorded.await.unwrap().unwrap().status, ProcessStatus::Failed);
    let second = engine.create(CreateRequest::default()).await.unwrap();
    let completed =
        engine.exec(&second.id, exec(&["echo", "hi"])).await.unwrap().wait().await.unwrap();
    assert_eq!(completed.stdout.data, b"hi");
    fill_in_the_middle(&engine, &backend, &ballast, &second.id).await;
    for found in engine.list(&SandboxQuery::default()).await.unwrap().items {
        engine.destroy(found.id.as_str()).await.unwrap();
    }
    assert_eq!(engine.leaks(false).await.unwrap().found, []);
    assert_eq!(backend.objects(), Vec::<String>::new());
    engine.close().await;

    // The file is whole, and a directory that was never opened fails as clearly.
    let database = rusqlite::Connection::open(state.join("belljar.db")).unwrap();
    let whole: String = database.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
    assert_eq!(whole, "ok");
    drop(database);
    fill(&ballast);
    let options = EngineOptions::new(disk.join("other"), vec![Arc::clone(&backend) as _]);
    check(&Engine::open(options).await.unwrap_err());
    std::fs::remove_file(&ballast).unwrap();
    open(&disk.join("other"), &backend).await.close().await;
}

/// The disk is full when a sandbox has been started, and when one is being stopped: neither stays half done.
async fn fill_in_the_middle(
    engine: &Engine,
    backend: &FakeBackend,
    ballast: &Path,
    ready: &SandboxId,
) {
    let name = Some(SandboxName::parse("web").unwrap());
    let request = || CreateRequest { name: name.clone(), ..CreateRequest::default() };
    let path = ballast.to_owned();
    *backend.on_start.lock().unwrap() = Some(Box::new(move || fill(&path)));
    let before = backend.objects();
    check(&engine.create(request()).await.unwrap_err());
    assert_eq!(backend.objects(), before);
    *backend.on_start.lock().unwrap() = None;
    std::fs::remove_file(ballast).unwrap();
    let again = async {
        loop {
            match engine.create(request()).await {
                Err(error) if error.code() == Code::SandboxExists => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                other => return other.unwrap(),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again).await.unwrap();

    let path = ballast.to_owned();
    *backend.on_stop.lock().unwrap() = Some(Box::new(move || fill(&path)));
    check(&engine.destroy(ready.as_str()).await.unwrap_err());
    *backend.on_stop.lock().unwrap() = None;
    std::fs::remove_file(ballast).unwrap();
    let destroyed = tokio::time::timeout(Duration::from_secs(30), engine.destroy(ready.as_str()));
    destroyed.await.unwrap().unwrap();
    assert_eq!(engine.inspect(ready.as_str()).await.unwrap().state, SandboxState::Destroyed);
}

fn check(error: &Error) {
    assert_eq!(error.code(), Code::StateFailed, "{error:?}");
    assert_eq!(
        error.remedy(),
        Some("free space on the file system of the state directory"),
        "{error:?}"
    );
}

/// Writes until nothing more fits, not even a byte.
fn fill(path: &Path) {
    let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
    for size in [1 << 16, 1 << 12, 1] {
        while file.write(&vec![0; size]).is_ok() {}
    }
}
