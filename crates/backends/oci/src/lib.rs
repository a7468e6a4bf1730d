//! The `oci` backend: sandboxes on an OCI runtime's binary, without any daemon.
//!
//! The machinery assembles the root, the limits and the network as for every sandbox on this host; the runtime encloses
//! the agent once more. `runsc` (gVisor) gives isolation class `kernel`, `runc` and `crun` give `namespace`: the class
//! follows from what really runs. Needs root. Which runtimes there are is in [`runtime`], how they are tried in [`trial`].

#![forbid(unsafe_code)]

mod runtime;
mod trial;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use belljar_backend::{
    Backend, Counters, Doors, Enforcement, Error, IsolationClass, Offer, Orphan, Probe, Result,
    Running, RuntimeChoice, SandboxSpec, Stream,
};
use belljar_codes::Code;
use belljar_machinery::{Machine, Wall};
use belljar_policy::SandboxId;

pub use runtime::NAMES;

/// Where runtimes are looked for.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Directories, the first one that has a program wins.
    pub directories: Vec<PathBuf>,
    /// Know no runtime but this one.
    pub only: Option<String>,
}

/// Sandboxes on OCI runtimes.
pub struct Oci {
    machine: Arc<Machine>,
    options: Options,
    /// What was found to be the best, for those who do not say.
    best: Mutex<Option<RuntimeChoice>>,
    /// What is installed, and when it was looked.
    offered: Mutex<Option<(Instant, Offer)>>,
}

/// For so long what is installed is not looked for again: there are many places to look in, and every creation asks.
const REMEMBERED: Duration = Duration::from_secs(1);

impl Oci {
    #[must_use]
    pub fn new(machine: Arc<Machine>, options: Options) -> Self {
        Self { machine, options, best: Mutex::default(), offered: Mutex::default() }
    }

    /// The wall that a specification means.
    async fn wall(&self, spec: &SandboxSpec) -> Result<Wall> {
        let choice = match &spec.runtime {
            Some(choice) => choice.clone(),
            None => self.best().await?,
        };
        runtime::open(&self.options, &choice).map(Wall::Runtime)
    }

    async fn best(&self) -> Result<RuntimeChoice> {
        let known = self.lock().clone();
        if let Some(choice) = known {
            return Ok(choice);
        }
        let probe = self.probe(None).await;
        match (probe.works, probe.runtime) {
            (true, Some(name)) => {
                let choice = RuntimeChoice { name, platform: probe.platform };
                *self.lock() = Some(choice.clone());
                Ok(choice)
            }
            _ => Err(unavailable(probe.reason, probe.remedy)),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<RuntimeChoice>> {
        self.best.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unavailable(reason: String, remedy: Option<String>) -> Error {
    let error = Error::new(Code::BackendUnavailable, reason);
    match remedy {
        Some(remedy) => error.with_remedy(remedy),
        None => error.with_remedy("`belljar probe` tells which runtimes work on this host"),
    }
}

#[async_trait]
impl Backend for Oci {
    fn name(&self) -> &'static str {
        "oci"
    }

    fn class(&self) -> Option<IsolationClass> {
        None
    }

    fn offer(&self) -> Offer {
        let mut offered = self.offered.lock().unwrap_or_else(PoisonError::into_inner);
        match &*offered {
            Some((looked, offer)) if looked.elapsed() < REMEMBERED => offer.clone(),
            _ => {
                let offer = runtime::offer(&self.options);
                *offered = Some((Instant::now(), offer.clone()));
                offer
            }
        }
    }

    async fn probe(&self, runtime: Option<&str>) -> Probe {
        let mut probe = match runtime {
            Some(name) => trial::of(&self.machine, &self.options, name).await,
            None => trial::best(&self.machine, &self.options).await,
        };
        probe.backend = self.name().to_owned();
        probe
    }

    async fn plan(&self, spec: &SandboxSpec) -> Result<Vec<Enforcement>> {
        self.machine.plan(&self.wall(spec).await?, spec).await
    }

    async fn start(&self, spec: SandboxSpec) -> Result<Running> {
        let wall = self.wall(&spec).await?;
        self.machine.start(&wall, spec).await
    }

    async fn connect(&self, id: &SandboxId) -> Result<Stream> {
        self.machine.connect(id).await
    }

    async fn is_alive(&self, id: &SandboxId) -> Result<bool> {
        self.machine.is_alive(id).await
    }

    async fn wait_gone(&self, id: &SandboxId) -> Result<()> {
        self.machine.wait_gone(id).await
    }

    async fn stop(&self, id: &SandboxId) -> Result<()> {
        self.machine.stop(id).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        self.machine.pause(id).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.machine.resume(id).await
    }

    async fn doors(&self, id: &SandboxId, udp_ports: &[u16]) -> Result<Option<Doors>> {
        self.machine.doors(id, udp_ports).await
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters> {
        self.machine.counters(id).await
    }

    async fn reset_workspace_layer(&self, id: &SandboxId) -> Result<()> {
        self.machine.reset_workspace_layer(id).await
    }

    async fn orphans(&self, known: &[SandboxId]) -> Result<Vec<Orphan>> {
        self.machine.orphans(known).await
    }

    async fn recover(&self) -> Result<()> {
        self.machine.recover().await
    }

    async fn close(&self) {
        self.machine.close().await;
    }
}
