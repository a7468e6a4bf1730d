//! A backend without a wall and an agent without a sandbox, for testing the engine alone.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its own part of this")]
#![allow(clippy::unwrap_used, reason = "a fake that fails should fail the test")]

pub mod agent;
pub mod backend;

use std::path::Path;
use std::sync::Arc;

use belljar_engine::{
    Completed, CreateRequest, Engine, EngineOptions, ExecRequest, ProcessId, Program, Quotas,
    SandboxId, Scope, Stdin, TenantId,
};

pub use backend::FakeBackend;

/// An engine on a state directory of its own.
pub struct Setup {
    pub directory: tempfile::TempDir,
    pub backend: Arc<FakeBackend>,
    pub engine: Engine,
}

impl Setup {
    pub async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let backend = FakeBackend::new(&directory.path().join("objects"));
        let engine = open(&directory.path().join("state"), &backend).await;
        Self { directory, backend, engine }
    }

    /// A second engine on the same state directory, as another process would have.
    pub async fn second(&self) -> Engine {
        open(&self.directory.path().join("state"), &self.backend).await
    }

    /// The engine as a tenant sees it, which is made where it is missing.
    pub async fn tenant(&self, name: &str) -> Engine {
        let id = TenantId::parse(name).unwrap();
        if self.engine.tenants().get(&id).await.is_err() {
            self.engine.tenants().create(id.clone(), Quotas::default()).await.unwrap();
        }
        self.engine.scoped(Scope::Tenant(id))
    }

    pub fn state(&self) -> std::path::PathBuf {
        self.directory.path().join("state")
    }

    pub async fn create(&self) -> SandboxId {
        self.engine.create(CreateRequest::default()).await.unwrap().id
    }

    pub async fn run(&self, id: &SandboxId, words: &[&str]) -> Completed {
        self.engine.exec(id, exec(words)).await.unwrap().wait().await.unwrap()
    }
}

pub async fn open(state: &Path, backend: &Arc<FakeBackend>) -> Engine {
    Engine::open(EngineOptions::new(state, vec![backend.clone() as _])).await.unwrap()
}

pub fn exec(words: &[&str]) -> ExecRequest {
    ExecRequest::new(Program::Argv(words.iter().map(Into::into).collect()))
}

/// Files below a directory, relative to it.
pub fn tree(directory: &Path) -> Vec<String> {
    fn walk(root: &Path, directory: &Path, found: &mut Vec<String>) {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                walk(root, &path, found);
            }
            found.push(path.strip_prefix(root).unwrap().display().to_string());
        }
    }
    let mut found = Vec::new();
    walk(directory, directory, &mut found);
    found.sort();
    found
}

/// An engine that lives long.
pub async fn open_attending(state: &Path, backend: &Arc<FakeBackend>) -> Engine {
    let options =
        EngineOptions { attend: true, ..EngineOptions::new(state, vec![backend.clone() as _]) };
    Engine::open(options).await.unwrap()
}

/// Starts a command for nobody, with an engine that is gone when this returns, as if its program had been killed.
pub async fn start_and_die(
    setup: &Setup,
    id: &SandboxId,
    words: &'static [&'static str],
) -> ProcessId {
    let (state, backend, id) = (setup.state(), setup.backend.clone(), id.clone());
    let doomed = tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let engine = open(&state, &backend).await;
            let mut request = exec(words);
            request.stdin = Stdin::Piped;
            engine.start(id.as_str(), request).await.unwrap().process.id
        })
    });
    doomed.await.unwrap()
}
