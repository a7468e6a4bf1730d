//! The backend trait on top of an engine.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use belljar_backend::{
    Backend, Counters, Doors, Enforcement, Error, IsolationClass, Offer, Orphan, Probe, Result,
    RootSource, Running, RuntimeChoice, SandboxSpec, Stream,
};
use belljar_codes::Code;
use belljar_machinery::host::HostRoot;
use belljar_machinery::host_path::HostPath;
use belljar_machinery::{Machine, probe, rootfs};
use belljar_policy::{NetworkMode, SandboxId};
use bollard::models::ContainerInspectResponse;
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, InspectContainerOptions, ListContainersOptionsBuilder,
    RemoveContainerOptionsBuilder, StartContainerOptions, StatsOptionsBuilder,
    WaitContainerOptionsBuilder,
};
use futures_util::StreamExt;
use tokio::sync::OnceCell;

use crate::container::{self, Asked};
use crate::counters::{self, Cgroup};
use crate::daemon::{self, Daemon, Options, class};
use crate::failure::{failed, is_conflict, is_missing};
use crate::images::{self, Image};
use crate::labels::{HARDENED, Installation};
use crate::limits::{self, Chosen};
use crate::{agent, binds, network, relay, setup};

/// The word used in flags, records and documents.
const NAME: &str = "docker";
/// Runtimes that engines may have, the strongest first.
const RUNTIMES: [&str; 3] = ["kata", "runsc", "runc"];
/// A tiny sandbox that takes longer is not chosen unasked.
const FAST_MILLISECONDS: f64 = 3_000.0;
/// How often an agent that does not listen yet is tried, and for how long.
const AGENT_STEP: Duration = Duration::from_millis(2);
const AGENT_LIMIT: Duration = Duration::from_secs(20);
/// How long a probe may take before the answer is "does not work".
const PROBE_LIMIT: Duration = Duration::from_secs(30);
/// How often it is looked whether a container that is being removed is gone, and for how long.
const REMOVAL_STEP: Duration = Duration::from_millis(20);
const REMOVAL_LIMIT: Duration = Duration::from_secs(30);

/// Containers of an engine.
pub struct Docker {
    options: Options,
    machine: Arc<Machine>,
    daemon: OnceCell<Daemon>,
    installation: OnceCell<Installation>,
    /// Roots of this host, without and with a network, and their images.
    hosts: [OnceCell<(HostRoot, Image)>; 2],
    /// Cgroups of containers on this host, so that reading them needs no engine.
    cgroups: Mutex<HashMap<SandboxId, Cgroup>>,
}

/// What a sandbox starts from, found.
struct Root<'a> {
    image: Image,
    host: Option<&'a HostRoot>,
    search_path: Vec<String>,
    environment: BTreeMap<String, String>,
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
            cgroups: Mutex::default(),
        }
    }

    /// The engine. One that did not answer is asked again by whoever comes next.
    async fn daemon(&self) -> Result<&Daemon> {
        self.daemon.get_or_try_init(|| Daemon::connect(&self.options)).await
    }

    async fn installation(&self) -> Result<&Installation> {
        let make = || async {
            Installation::of(self.machine.state_dir()).map_err(|error| {
                Error::new(Code::StateFailed, "the installation's name cannot be kept")
                    .with_source(error)
            })
        };
        self.installation.get_or_try_init(make).await
    }

    /// The container of a sandbox; `None` where there is none, or one that is not ours.
    async fn inspect(&self, id: &SandboxId) -> Result<Option<ContainerInspectResponse>> {
        let installation = self.installation().await?;
        let name = installation.container(id);
        let client = &self.daemon().await?.client;
        match client.inspect_container(&name, None::<InspectContainerOptions>).await {
            Ok(found) => {
                let labels = found.config.as_ref().and_then(|config| config.labels.as_ref());
                Ok((installation.sandbox(labels).as_ref() == Some(id)).then_some(found))
            }
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(failed(format!("the engine does not tell of sandbox `{id}`"), error)),
        }
    }

    /// The whole id of a sandbox's container and the number of its first process, while it runs.
    async fn running(&self, id: &SandboxId) -> Result<Option<(String, i32)>> {
        Ok(self.inspect(id).await?.and_then(first_process))
    }

    async fn root(&self, spec: &SandboxSpec) -> Result<Root<'_>> {
        let daemon = self.daemon().await?;
        let usual = || rootfs::SEARCH_PATH.iter().map(|&path| path.to_owned()).collect();
        match &spec.root {
            RootSource::Host => {
                let (host, image) = self.host(spec.network != NetworkMode::None).await?;
                let search_path = host.search_path.clone();
                let environment = path_variable(&search_path);
                Ok(Root { image: image.clone(), host: Some(host), search_path, environment })
            }
            RootSource::Directory { path, descriptor } => {
                let copy = descriptor.try_clone().map_err(unreadable)?;
                let source = HostPath::of(copy, path);
                let directory = source.by_descriptor();
                let digest = tokio::task::spawn_blocking({
                    let directory = directory.clone();
                    move || images::digest(&directory)
                });
                let digest = digest.await.map_err(|error| unreadable(error.into()))?;
                let digest = digest.map_err(unreadable)?;
                let image = images::import(&daemon.client, "rootfs", &digest, directory).await?;
                let search_path: Vec<String> = usual();
                let environment = path_variable(&search_path);
                Ok(Root { image, host: None, search_path, environment })
            }
            RootSource::Image { name } => {
                let image = images::find(&daemon.client, name, self.options.pull).await?;
                self.check_hardened(name, &image, spec)?;
                let mut environment = image.environment.clone();
                let search_path: Vec<String> = match environment.get("PATH") {
                    Some(path) => path.split(':').map(str::to_owned).collect(),
                    None => usual(),
                };
                environment.extend(path_variable(&search_path));
                Ok(Root { image, host: None, search_path, environment })
            }
        }
    }

    /// This host as a root: an image of what is ours in it, over which its programs are bound.
    async fn host(&self, network: bool) -> Result<&(HostRoot, Image)> {
        let daemon = self.daemon().await?;
        if !daemon.facts.near {
            return Err(crate::failure::refused(
                "template host",
                "the engine is not on this host, or we may not look at its containers",
                "use `--template image:NAME`, or `rootfs:DIR`, which is sent to the engine",
            ));
        }
        let make = || async {
            let host =
                HostRoot::build(&self.machine.templates(), true, network).map_err(|error| {
                    Error::new(Code::StateFailed, "the host template cannot be put together")
                        .with_source(error)
                })?;
            let skeleton = host.skeleton.by_descriptor();
            let digest = images::digest(&skeleton).map_err(unreadable)?;
            let image = images::import(&daemon.client, "host", &digest, skeleton).await?;
            Ok((host, image))
        };
        self.hosts[usize::from(network)].get_or_try_init(make).await
    }

    fn check_hardened(&self, name: &str, image: &Image, spec: &SandboxSpec) -> Result<()> {
        let says = image.labels.get(HARDENED).is_some_and(|value| value == "true");
        if says || spec.programs.is_some() || !self.options.require_hardened_image {
            return Ok(());
        }
        Err(crate::failure::refused(
            "template",
            &format!("image `{name}` does not say that it is hardened, which is required here"),
            &format!("use an image with the label `{HARDENED}=true`"),
        ))
    }

    async fn plan_with(&self, spec: &SandboxSpec) -> Result<(Root<'_>, Chosen)> {
        let facts = &self.daemon().await?.facts;
        self.runtime(spec).await?;
        limits::choose(spec, facts, &[])?; // what is refused is so before any image is made
        let root = self.root(spec).await?;
        let chosen = limits::choose(spec, facts, &root.image.volumes)?;
        Ok((root, chosen))
    }

    async fn create(&self, spec: &SandboxSpec, root: &Root<'_>, chosen: &Chosen) -> Result<Made> {
        let daemon = self.daemon().await?;
        let facts = &daemon.facts;
        let installation = self.installation().await?;
        let (mounts, binds) = if facts.near {
            let templates = self.machine.templates();
            let binds = binds::of(spec, root.host, &root.search_path, &templates)?;
            (binds.iter().map(binds::Bind::to_mount).collect::<Result<_>>()?, binds)
        } else {
            agent::fill_volume(&daemon.client, &root.image.id, installation).await?;
            (vec![agent::volume()], Vec::new())
        };
        let runtime = self.runtime(spec).await?;
        let asked = Asked {
            image: &root.image.id,
            runtime: runtime.as_deref(),
            labels: installation.labels(&spec.id),
            mounts,
        };
        let body = container::body(spec, chosen, facts, asked)?;
        let name = installation.container(&spec.id);
        let options = CreateContainerOptionsBuilder::new().name(&name).build();
        let created = daemon.client.create_container(Some(options), body).await;
        let created = created.map_err(|error| match is_conflict(&error) {
            true => Error::new(Code::SandboxExists, format!("sandbox `{}` exists", spec.id))
                .with_source(error),
            false => failed("the engine does not make the container", error),
        })?;
        Ok(Made { container: created.id, class: class(runtime.as_deref()), binds })
    }

    /// From a container that was made to an agent that listens.
    async fn bring_up(&self, spec: &SandboxSpec, made: &Made) -> Result<Stream> {
        let daemon = self.daemon().await?;
        daemon
            .client
            .start_container(&made.container, None::<StartContainerOptions>)
            .await
            .map_err(|error| failed("the engine does not start the container", error))?;
        if daemon.facts.near {
            let ended = || Error::new(Code::StartFailed, "the container ended as soon as it began");
            let (container, pid) = self.running(&spec.id).await?.ok_or_else(ended)?;
            if made.class == IsolationClass::Namespace {
                binds::verify(&network::root(&container, pid)?, &made.binds)?;
            } else {
                binds::verify_names(&made.binds)?;
            }
            if let Some(cgroup) = Cgroup::of(pid) {
                self.lock_cgroups().insert(spec.id.clone(), cgroup);
            }
            if made.class == IsolationClass::Namespace {
                return self.reach(&container, pid).await;
            }
        }
        relay::connect(&daemon.client, &made.container).await
    }

    fn lock_cgroups(&self) -> std::sync::MutexGuard<'_, HashMap<SandboxId, Cgroup>> {
        self.cgroups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A stream to the agent of a container that runs.
    async fn reach(&self, container: &str, pid: i32) -> Result<Stream> {
        let daemon = self.daemon().await?;
        if !daemon.facts.is_reachable() {
            return relay::connect(&daemon.client, container).await;
        }
        let namespace = Arc::new(network::namespace(container, pid)?);
        let deadline = Instant::now() + AGENT_LIMIT;
        loop {
            if let Some(stream) = self.machine.connect_of(&namespace).await? {
                return Ok(stream);
            }
            if Instant::now() > deadline {
                return Err(Error::new(Code::AgentFailed, "the agent does not listen")
                    .with_remedy("the machine may be busy; try again"));
            }
            tokio::time::sleep(AGENT_STEP).await;
        }
    }

    /// The engine's name for the runtime of a sandbox.
    async fn runtime(&self, spec: &SandboxSpec) -> Result<Option<String>> {
        let wanted = spec.runtime.as_ref().map(|choice| choice.name.as_str());
        let Some(wanted) = wanted.or(self.options.runtime.as_deref()) else { return Ok(None) };
        let facts = &self.daemon().await?.facts;
        let found = facts.runtime(wanted).map(str::to_owned).ok_or_else(|| no_runtime(wanted))?;
        if class(Some(&found)) != IsolationClass::Namespace && spec.network != NetworkMode::None {
            return Err(crate::failure::refused(
                "network",
                &format!(
                    "`{found}` has a network stack of its own, which a gateway cannot be given later"
                ),
                "use `--network none`, `--runtime runc`, or `--backend oci`",
            ));
        }
        Ok(Some(found))
    }

    async fn try_probe(&self, runtime: &str) -> Result<(f64, Vec<Enforcement>)> {
        let mut spec = probe::spec();
        spec.runtime = Some(RuntimeChoice { name: runtime.to_owned(), platform: None });
        if !self.daemon().await?.facts.near {
            // The agent needs nothing around it, and nothing else is run.
            let path = self.machine.templates().join("docker-empty");
            std::fs::create_dir_all(&path).map_err(unreadable)?;
            let descriptor = std::fs::File::open(&path).map_err(unreadable)?.into();
            spec.root = RootSource::Directory { path, descriptor };
        }
        let started = Instant::now();
        let id = spec.id.clone();
        let running = self.start(spec).await;
        let stopped = self.stop(&id).await;
        let enforcement = running?.enforcement;
        stopped?;
        Ok((started.elapsed().as_secs_f64() * 1000.0, enforcement))
    }

    /// Tries one runtime of the engine.
    async fn probe_runtime(&self, runtime: &str) -> Probe {
        let mut probe = empty_probe();
        let facts = match self.daemon().await {
            Ok(daemon) => &daemon.facts,
            Err(error) => return failed_probe(error),
        };
        let Some(found) = facts.runtime(runtime) else { return failed_probe(no_runtime(runtime)) };
        probe.runtime = Some(found.to_owned());
        probe.class = class(Some(found));
        match tokio::time::timeout(PROBE_LIMIT, self.try_probe(found)).await {
            Ok(Ok((milliseconds, enforcement))) => {
                let place = if facts.near { "on this host" } else { "elsewhere" };
                probe.works = true;
                probe.fast = milliseconds < FAST_MILLISECONDS;
                probe.reason = format!("engine {} {place}, {}", facts.version, facts.address);
                probe.start_ms = Some(milliseconds);
                probe.enforcement = enforcement;
            }
            Ok(Err(error)) => {
                let failed = failed_probe(error);
                (probe.reason, probe.remedy) = (failed.reason, failed.remedy);
            }
            Err(_) => {
                probe.reason =
                    format!("a tiny sandbox did not start within {} s", PROBE_LIMIT.as_secs());
            }
        }
        probe
    }
}

fn no_runtime(name: &str) -> Error {
    Error::new(
        Code::BackendUnavailable,
        format!("the engine has no runtime `{}`", name.escape_default()),
    )
    .with_remedy("add it to the engine's configuration, or leave out `--runtime`")
}

fn empty_probe() -> Probe {
    Probe {
        backend: NAME.to_owned(),
        runtime: None,
        platform: None,
        fast: false,
        works: false,
        class: IsolationClass::Namespace,
        reason: String::new(),
        remedy: None,
        start_ms: None,
        enforcement: Vec::new(),
    }
}

fn failed_probe(error: Error) -> Probe {
    Probe { reason: probe::with_causes(&error), remedy: error.remedy, ..empty_probe() }
}

/// A container that was made and what it is to show.
struct Made {
    container: String,
    class: IsolationClass,
    binds: Vec<binds::Bind>,
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
        let socket = daemon::socket(&self.options);
        let stamp = socket.as_ref().and_then(|path| std::fs::metadata(path).ok());
        let there = self.options.host.is_some() || stamp.is_some();
        let mut runtimes: Vec<String> = RUNTIMES.map(str::to_owned).to_vec();
        if let Some(own) = self.options.runtime.as_ref().filter(|own| !runtimes.contains(own)) {
            runtimes.insert(0, own.clone());
        }
        Offer {
            // What is stronger must be asked for by name: nothing is tried on an engine unasked.
            strongest: if there { IsolationClass::Namespace } else { IsolationClass::None },
            runtimes,
            fingerprint: format!("{:?} {:?}", self.options, stamp.map(|file| file.modified().ok())),
        }
    }

    async fn probe(&self, runtime: Option<&str>) -> Probe {
        if let Some(runtime) = runtime.or(self.options.runtime.as_deref()) {
            return self.probe_runtime(runtime).await;
        }
        let facts = match self.daemon().await {
            Ok(daemon) => &daemon.facts,
            Err(error) => return failed_probe(error),
        };
        let usual = facts.usual_runtime.as_deref().unwrap_or("runc");
        let stronger = RUNTIMES.into_iter().filter(|name| facts.runtime(name).is_some());
        let stronger = stronger.filter(|name| class(Some(name)) > class(Some(usual)));
        let mut best = None;
        for runtime in stronger.chain([usual]) {
            let probe = self.probe_runtime(runtime).await;
            if probe.works && probe.fast {
                return probe;
            }
            best = best.filter(|best: &Probe| best.works).or(Some(probe));
        }
        best.unwrap_or_else(empty_probe)
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
                Ok(Running { stream, agent, enforcement: chosen.enforcement })
            }
            Err(error) => {
                self.stop(&spec.id).await?;
                Err(error)
            }
        }
    }

    async fn connect(&self, id: &SandboxId) -> Result<Stream> {
        let gone = || {
            Error::new(Code::SandboxGone, format!("sandbox `{id}` does not answer"))
                .with_remedy("it has ended; create a new one")
        };
        let found = self.inspect(id).await?.ok_or_else(gone)?;
        let runtime = found.host_config.as_ref().and_then(|config| config.runtime.as_deref());
        let own_kernel = class(runtime) != IsolationClass::Namespace;
        let (container, pid) = first_process(found).ok_or_else(gone)?;
        if own_kernel {
            return relay::connect(&self.daemon().await?.client, &container).await;
        }
        self.reach(&container, pid).await
    }

    async fn is_alive(&self, id: &SandboxId) -> Result<bool> {
        Ok(self.running(id).await?.is_some())
    }

    async fn wait_gone(&self, id: &SandboxId) -> Result<()> {
        while let Some((container, _)) = self.running(id).await? {
            let options = WaitContainerOptionsBuilder::new().condition("not-running").build();
            let client = &self.daemon().await?.client;
            // However this ends, whether it is gone is asked for again.
            let _ = client.wait_container(&container, Some(options)).next().await;
        }
        Ok(())
    }

    async fn stop(&self, id: &SandboxId) -> Result<()> {
        self.lock_cgroups().remove(id);
        let deadline = Instant::now() + REMOVAL_LIMIT;
        while let Some(found) = self.inspect(id).await? {
            let container = found.id.unwrap_or_default();
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            let client = &self.daemon().await?.client;
            match client.remove_container(&container, Some(options)).await {
                Ok(()) => return Ok(()),
                Err(error) if is_missing(&error) => return Ok(()),
                // It is being removed already, perhaps because its agent has just ended.
                Err(error) if is_conflict(&error) && Instant::now() < deadline => {
                    tokio::time::sleep(REMOVAL_STEP).await;
                }
                Err(error) => return Err(failed(format!("sandbox `{id}` does not end"), error)),
            }
        }
        Ok(())
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        let name = self.installation().await?.container(id);
        match self.daemon().await?.client.pause_container(&name).await {
            Ok(()) => Ok(()),
            Err(error) if is_conflict(&error) => Ok(()), // it is paused
            Err(error) => Err(failed(format!("sandbox `{id}` cannot be paused"), error)),
        }
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        let paused = self.inspect(id).await?.and_then(|found| found.state?.paused);
        if paused != Some(true) {
            return Ok(());
        }
        let name = self.installation().await?.container(id);
        match self.daemon().await?.client.unpause_container(&name).await {
            Ok(()) => Ok(()),
            Err(error) if is_conflict(&error) => Ok(()), // somebody else was first
            Err(error) => Err(failed(format!("sandbox `{id}` cannot be resumed"), error)),
        }
    }

    async fn doors(&self, id: &SandboxId, udp_ports: &[u16]) -> Result<Option<Doors>> {
        let gone = || Error::new(Code::SandboxGone, format!("sandbox `{id}` has ended"));
        let (container, pid) = self.running(id).await?.ok_or_else(gone)?;
        let namespace = network::namespace(&container, pid)?;
        self.machine.doors_of(namespace, udp_ports).await.map(Some)
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters> {
        let known = self.lock_cgroups().get(id).cloned();
        if let Some(counters) = known.and_then(|cgroup| cgroup.read()) {
            return Ok(counters);
        }
        let Some((container, pid)) = self.running(id).await? else {
            return Ok(Counters::default());
        };
        let daemon = self.daemon().await?;
        if daemon.facts.near
            && let Some(cgroup) = Cgroup::of(pid)
            && let Some(counters) = cgroup.read()
        {
            self.lock_cgroups().insert(id.clone(), cgroup);
            return Ok(counters);
        }
        let options = StatsOptionsBuilder::new().stream(false).one_shot(true).build();
        let stats = daemon.client.stats(&container, Some(options)).next().await;
        let killed = self.inspect(id).await?.and_then(|found| found.state?.oom_killed);
        let stats = stats.and_then(std::result::Result::ok).unwrap_or_default();
        Ok(counters::from_engine(&stats, killed == Some(true)))
    }

    async fn reset_workspace_layer(&self, _id: &SandboxId) -> Result<()> {
        Err(crate::failure::refused(
            "workspace reset",
            "containers have no layer over the workspace",
            "create a new sandbox",
        ))
    }

    async fn orphans(&self, known: &[SandboxId]) -> Result<Vec<Orphan>> {
        let installation = self.installation().await?;
        // Where no engine ever answered there is nothing of ours on it.
        let Ok(daemon) = self.daemon().await else { return Ok(Vec::new()) };
        let filter = installation.filter();
        let options = ListContainersOptionsBuilder::new().all(true).filters(&filter).build();
        let found = daemon.client.list_containers(Some(options)).await;
        let found = found.map_err(|error| failed("the engine does not list containers", error))?;
        Ok(found
            .into_iter()
            .map(|container| Orphan {
                kind: "container".to_owned(),
                name: container.names.unwrap_or_default().join(" "),
                sandbox: installation.sandbox(container.labels.as_ref()),
            })
            .filter(|orphan| orphan.sandbox.as_ref().is_none_or(|id| !known.contains(id)))
            .collect())
    }

    async fn recover(&self) -> Result<()> {
        Ok(()) // it has no process on the host besides its sandboxes
    }

    async fn close(&self) {}
}

/// The whole id of a container and the number of its first process, if it runs.
fn first_process(found: ContainerInspectResponse) -> Option<(String, i32)> {
    let state = found.state?;
    let pid = i32::try_from(state.pid?).ok().filter(|pid| *pid > 0)?;
    (state.running == Some(true)).then_some((found.id?, pid))
}

fn path_variable(search_path: &[String]) -> BTreeMap<String, String> {
    BTreeMap::from([("PATH".to_owned(), search_path.join(":"))])
}

fn unreadable(error: std::io::Error) -> Error {
    Error::new(Code::StateFailed, "the template cannot be read").with_source(error)
}
