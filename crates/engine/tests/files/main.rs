//! Files of a sandbox with a real agent. The sandbox is a plain process on this host, so that both sides of every
//! operation can be looked at.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail the test")]

mod archives;
mod copies;
mod hostile_tar;
mod hostile_zip;
mod raw;
mod searches;
mod snapshots;
mod transfers;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use belljar_engine::{BackendChoice, CreateRequest, Engine, EngineOptions, Files, SandboxId};
use belljar_policy::{NetworkMode, NetworkPolicy};

/// An engine with one sandbox, and a directory to work in.
struct Setup {
    files: Files,
    engine: Engine,
    id: SandboxId,
    directory: tempfile::TempDir,
}

impl Setup {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("work")).unwrap();
        let state = directory.path().join("state");
        let backend = Arc::new(belljar_local::Local::new(state.clone()));
        let engine = Engine::open(EngineOptions::new(&state, vec![backend as _])).await.unwrap();
        let request = CreateRequest {
            backend: BackendChoice::Named("local".to_owned()),
            waive_isolation: true,
            network: NetworkPolicy { mode: NetworkMode::Full, ..NetworkPolicy::default() },
            ..CreateRequest::default()
        };
        let id = engine.create(request).await.unwrap().id;
        let files = engine.files(&id).await.unwrap();
        Self { files, engine, id, directory }
    }

    /// The same path on both sides.
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("work").join(name)
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    /// Makes a file longer without touching what is in it.
    fn append(&self, name: &str, content: &[u8]) {
        use std::io::Write;
        let mut file = std::fs::File::options().append(true).open(self.path(name)).unwrap();
        file.write_all(content).unwrap();
    }

    fn shorten(&self, name: &str, size: u64) {
        let file = std::fs::File::options().write(true).open(self.path(name)).unwrap();
        file.set_len(size).unwrap();
    }

    fn tree(&self, name: &str) -> Vec<String> {
        tree(&self.path(name))
    }

    async fn end(self) {
        self.engine.destroy(self.id.as_str()).await.unwrap();
    }
}

/// Waits until something is so that nobody tells of.
async fn eventually(mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !holds() {
        assert!(std::time::Instant::now() < end, "it never happened");
        tokio::task::yield_now().await;
    }
}

/// What is below a directory: path, kind, and what is in it.
fn tree(directory: &Path) -> Vec<String> {
    fn walk(root: &Path, directory: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let entry = entry.unwrap();
            let path = entry.path();
            let shown = path.strip_prefix(root).unwrap().display().to_string();
            let kind = entry.file_type().unwrap();
            if kind.is_symlink() {
                let target = std::fs::read_link(&path).unwrap();
                found.push(format!("{shown} -> {}", target.display()));
            } else if kind.is_dir() {
                found.push(format!("{shown}/"));
                walk(root, &path, found);
            } else {
                found.push(shown);
            }
        }
    }
    let mut found = Vec::new();
    walk(directory, directory, &mut found);
    found.sort();
    found
}
