//! The backend trait on top of an engine: which part of this crate does what.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use belljar_backend::{
    Backend, Counters, Doors, Enforcement, Error, FetchStep, IsolationClass, Offer, Orphan, Probe,
    Result, Running, SandboxSpec, Stream,
};
use belljar_codes::Code;
use belljar_machinery::Machine;
use belljar_machinery::host::HostRoot;
use belljar_policy::SandboxId;
use tokio::sync::{OnceCell, mpsc};

use crate::daemon::{Daemon, Options};
use crate::images::{self, Image};
use crate::labels::Installation;
use crate::usage::Known;
use crate::{limits, network, setup};

/// The word used in flags, records and documents.
pub(crate) const NAME: &str = "docker";

/// Containers of an engine.
pub struct Docker {
    pub(crate) options: Options,
    pub(crate) machine: Arc<Machine>,
    daemon: OnceCell<Daemon>,
    installation: OnceCell<Installation>,
    /// Roots of this host, without and with a network, and their images.
    pub(crate) hosts: [OnceCell<(HostRoot, Image)>; 2],
    /// Held by who makes an image of listed programs, so that others find it made.
    pub(crate) limiting: tokio::sync::Mutex<()>,
    /// Containers on this host, so that counting needs no engine.
    known: Mutex<HashMap<SandboxId, Known>>,
}

impl Docker {
    #[must_use]
    pub fn new(options: Options, machine: Arc<Machine>) -> Self {
        Self {
            options,
            machine,
            daemon: OnceCell::new(),
            installation: OnceCell::new(),
            hosts: [OnceCell::new(), OnceCell::new()],
            limiting: tokio::sync::Mutex::default(),
            known: Mutex::default(),
        }
    }

    /// The engine. One that did not answer is asked again by whoever comes next.
    pub(crate) async fn daemon(&self) -> Result<&Daemon> {
        self.daemon.get_or_try_init(|| Daemon::connect(&self.options)).await
    }

    pub(crate) async fn installation(&self) -> Result<&Installation> {
        let make = || async {
            Installation::of(self.machine.state_dir()).map_err(|error| {
                Error::new(Code::StateFailed, "the installation's name cannot be kept")
                    .with_source(error)
            })
        };
        self.installation.get_or_try_init(make).await
    }

    pub(crate) fn lock_known(&self) -> MutexGuard<'_, HashMap<SandboxId, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Backend for Docker {
    fn name(&self) -> &'static str {
        NAME
    }

    fn class(&self) -> Option<IsolationClass> {
        None // by the runtime that the engine has and that works
    }

    fn offer(&self) -> Offer {
        self.offered()
    }

    async fn probe(&self, runtime: Option<&str>) -> Probe {
        self.probed(runtime).await
    }

    async fn plan(&self, spec: &SandboxSpec) -> Result<Vec<Enforcement>> {
        let facts = &self.daemon().await?.facts;
        self.runtime(spec).await?;
        Ok(limits::choose(spec, facts, &[])?.enforcement)
    }

    async fn start(&self, spec: SandboxSpec) -> Result<Running> {
        let (root, chosen) = self.plan_with(&spec).await?;
        let made = self.create(&spec, &root, &chosen).await?;
        match self.bring_up(&spec, &made).await {
            Ok(stream) => {
                let own_kernel = made.class != IsolationClass::Namespace;
                let agent = setup::agent_setup(&spec, &chosen, root.environment, own_kernel);
                Ok(Running { stream, agent, enforcement: chosen.enforcement, was_ready: None })
            }
            Err(error) => {
                self.stop(&spec.id).await?;
                Err(error)
            }
        }
    }

    async fn connect(&self, id: &SandboxId) -> Result<Stream> {
        self.stream(id).await
    }

    async fn is_alive(&self, id: &SandboxId) -> Result<bool> {
        Ok(self.running(id).await?.is_some())
    }

    async fn wait_gone(&self, id: &SandboxId) -> Result<()> {
        self.await_end(id).await
    }

    async fn stop(&self, id: &SandboxId) -> Result<()> {
        self.lock_known().remove(id);
        self.remove(id).await
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        self.freeze(id).await
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.thaw(id).await
    }

    async fn doors(&self, id: &SandboxId, udp_ports: &[u16]) -> Result<Option<Doors>> {
        let gone = || Error::new(Code::SandboxGone, format!("sandbox `{id}` has ended"));
        let (container, pid) = self.running(id).await?.ok_or_else(gone)?;
        let namespace = network::namespace(&container, pid)?;
        self.machine.doors_of(namespace, udp_ports).await.map(Some)
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters> {
        self.count(id).await
    }

    async fn fetch(&self, image: &str, steps: &mpsc::Sender<FetchStep>) -> Result<()> {
        let client = &self.daemon().await?.client;
        images::find(client, image, self.options.pull, Some(steps)).await.map(drop)
    }

    async fn reset_workspace_layer(&self, _id: &SandboxId) -> Result<()> {
        Err(crate::failure::refused(
            "workspace reset",
            "containers have no layer over the workspace",
            "create a new sandbox",
        ))
    }

    async fn orphans(&self, known: &[SandboxId]) -> Result<Vec<Orphan>> {
        self.left_over(known).await
    }

    async fn recover(&self) -> Result<()> {
        self.remove_unstarted().await
    }

    async fn close(&self) {}
}
