//! The native backend: namespaces, overlay, cgroups, seccomp and Landlock, from this one binary.
//!
//! Isolation class `namespace`. Works as root, with a range of user ids per sandbox, and as an ordinary user, with
//! one. What a sandbox is made of is in `machinery`; this backend is that and nothing more around it.

#![forbid(unsafe_code)]

use std::sync::Arc;

use async_trait::async_trait;
use belljar_backend::{
    Backend, Counters, Doors, Enforcement, IsolationClass, Orphan, Probe, Result, Running,
    SandboxSpec, Stream,
};
use belljar_machinery::{Facts, Machine, Wall, probe};
use belljar_policy::SandboxId;

pub use belljar_machinery::Options;

/// Namespaces and the rest of it on this host's own kernel.
pub struct Native {
    machine: Arc<Machine>,
}

impl Native {
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self::on(Arc::new(Machine::new(options)))
    }

    /// On a machine that other backends use too.
    #[must_use]
    pub fn on(machine: Arc<Machine>) -> Self {
        Self { machine }
    }

    /// What the launcher found on this host.
    pub async fn facts(&self) -> Result<Facts> {
        self.machine.facts().await
    }
}

#[async_trait]
impl Backend for Native {
    fn name(&self) -> &'static str {
        "native"
    }

    fn class(&self) -> Option<IsolationClass> {
        Some(IsolationClass::Namespace)
    }

    async fn probe(&self, _runtime: Option<&str>) -> Probe {
        let mut probe = probe::of(&self.machine, &Wall::Native).await;
        probe.backend = self.name().to_owned();
        if probe.works {
            let privileged = self.facts().await.is_ok_and(|facts| facts.privileged);
            let user = if privileged { "root" } else { "ordinary user, user namespaces" };
            probe::runs_on(&mut probe, user);
        }
        probe
    }

    async fn plan(&self, spec: &SandboxSpec) -> Result<Vec<Enforcement>> {
        self.machine.plan(&Wall::Native, spec).await
    }

    async fn start(&self, spec: SandboxSpec) -> Result<Running> {
        self.machine.start(&Wall::Native, spec).await
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
