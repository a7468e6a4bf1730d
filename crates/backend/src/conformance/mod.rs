//! What every backend must do, written once.
//!
//! A backend's tests make a [`Bench`] around it and run all [`CASES`]. A case either passes, fails with a sentence, or
//! is refused by the backend with a code; a refusal counts as such and must be expected by the backend's test. Each
//! denial has an allowed twin in the same case, so that a case which could not work at all does not pass.

mod cases;
mod client;

pub use cases::CASES;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use belljar_policy::{Limits, NetworkMode, SandboxId};

use crate::{Backend, MountSource, ResolvedMount, RootSource, Running, SandboxSpec, UserIds};
pub(crate) use client::{Agent, Ended};

/// A backend under test and a directory that it may use as a host would.
pub struct Bench<'a> {
    pub backend: &'a dyn Backend,
    /// Writable by the test and by whoever the workload is on the host.
    pub scratch: PathBuf,
    /// System calls inside are answered by a kernel of the wall's own, whose `/proc` shows other things.
    pub own_kernel: bool,
}

/// How a case ended.
pub type Outcome = Result<(), String>;

type CaseFuture<'a> = std::pin::Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// One case: its name and what it does.
#[derive(Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    run: for<'a> fn(&'a Bench<'a>) -> CaseFuture<'a>,
}

impl Case {
    /// Runs the case. Sandboxes that it started are stopped whatever happens.
    pub async fn run(&self, bench: &Bench<'_>) -> Outcome {
        (self.run)(bench).await
    }
}

/// A started sandbox, spoken to by a minimal client.
pub(crate) struct Started {
    pub(crate) id: SandboxId,
    pub(crate) agent: Agent,
}

impl Bench<'_> {
    pub(crate) fn spec(&self) -> SandboxSpec {
        SandboxSpec {
            id: fresh_id(),
            root: RootSource::Host,
            writable_root: false,
            mounts: Vec::new(),
            covers: Vec::new(),
            masks: Vec::new(),
            limits: Limits::default(),
            best_effort: true,
            network: NetworkMode::None,
            user: UserIds { uid: 1000, gid: 1000 },
            hostname: "conformance".to_owned(),
            programs: None,
            tools: false,
            runtime: None,
        }
    }

    /// A directory in the scratch one, which the same may write to.
    pub(crate) fn directory(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.scratch.join(name);
        std::fs::create_dir(&path).map_err(text)?;
        let permissions = std::fs::metadata(&self.scratch).map_err(text)?.permissions();
        std::fs::set_permissions(&path, permissions).map_err(text)?;
        Ok(path)
    }

    pub(crate) fn mount(
        &self,
        name: &str,
        target: &str,
        access: belljar_policy::Access,
    ) -> Result<ResolvedMount, String> {
        let path = self.scratch.join(name);
        let descriptor = std::fs::File::open(&path).map_err(text)?;
        Ok(ResolvedMount {
            source: MountSource { path, descriptor: descriptor.into() },
            target: Path::new(target).to_owned(),
            access,
            overlay: false,
        })
    }

    pub(crate) async fn start(&self, spec: SandboxSpec) -> Result<Started, String> {
        let id = spec.id.clone();
        let user = spec.user;
        let Running { stream, agent, .. } = self
            .backend
            .start(spec)
            .await
            .map_err(|error| format!("{error}: {:?}", error.source))?;
        match Agent::configure(stream, &agent, user).await {
            Ok(agent) => Ok(Started { id, agent }),
            Err(error) => {
                self.backend.stop(&id).await.map_err(text)?;
                Err(error)
            }
        }
    }

    /// Starts a sandbox, does something with it and stops it.
    pub(crate) async fn with<F>(&self, spec: SandboxSpec, act: F) -> Outcome
    where
        F: AsyncFnOnce(&mut Started) -> Outcome,
    {
        let mut started = self.start(spec).await?;
        let outcome = act(&mut started).await;
        let stopped = self.backend.stop(&started.id).await.map_err(text);
        outcome.and(stopped)
    }
}

pub(crate) fn fresh_id() -> SandboxId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut entropy = [0; 16];
    entropy[..4].copy_from_slice(&std::process::id().to_le_bytes());
    entropy[8..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    SandboxId::from_random("conf", &entropy).expect("`conf` is a valid node")
}

pub(crate) fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Fails with a sentence unless the condition holds.
pub(crate) fn ensure(condition: bool, sentence: impl FnOnce() -> String) -> Outcome {
    if condition { Ok(()) } else { Err(sentence()) }
}
