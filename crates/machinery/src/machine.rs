//! The launcher of an installation, and the life of the sandboxes that it makes.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_backend::{
    Counters, Doors, Enforcement, Error, Orphan, Result, RootSource, Running, SandboxSpec, Stream,
};
use belljar_codes::Code;
use belljar_launcher::wire::{self, Answer, Ask, Facts, Start};
use belljar_policy::{NetworkMode, SandboxId};
use belljar_sys::process::ProcessIdentity;
use belljar_sys::{memory_file, mount};
use tokio::sync::{Mutex, OnceCell};

use crate::client::Client;
use crate::explain::explain;
use crate::host::HostRoot;
use crate::request::{Request, mounts};
use crate::setup::agent_setup;
use crate::wall::Wall;
use crate::{doors, masks, mechanism, probe};

/// How long to wait for an agent that was told to die, before that is an error.
const GONE_POLL: Duration = Duration::from_secs(30);

/// Nobody listens, or too many wait.
const NOT_YET: [i32; 2] =
    [rustix::io::Errno::CONNREFUSED.raw_os_error(), rustix::io::Errno::AGAIN.raw_os_error()];

/// How the machinery is set up.
#[derive(Clone, Debug)]
pub struct Options {
    pub state_dir: PathBuf,
    /// The program that has the hidden `launcher` command: this one.
    pub launcher: PathBuf,
}

/// One installation on this host. Backends that are made of it share it.
pub struct Machine {
    options: Options,
    /// Made when it is first needed, and anew when it has ended.
    launcher: Mutex<Option<Arc<Launched>>>,
    /// Without and with a network.
    hosts: [OnceCell<HostRoot>; 2],
    /// Doors that were made with their sandboxes, until they are asked for.
    doors: std::sync::Mutex<HashMap<SandboxId, Doors>>,
}

struct Launched {
    client: Client,
    facts: Facts,
}

impl Machine {
    #[must_use]
    pub fn new(options: Options) -> Self {
        Self {
            options,
            launcher: Mutex::default(),
            hosts: [OnceCell::new(), OnceCell::new()],
            doors: Default::default(),
        }
    }

    /// What the launcher found on this host.
    pub async fn facts(&self) -> Result<Facts> {
        Ok(self.launched().await?.facts.clone())
    }

    async fn launched(&self) -> Result<Arc<Launched>> {
        let mut launcher = self.launcher.lock().await;
        if let Some(launched) = launcher.as_ref().filter(|launched| launched.client.is_open()) {
            return Ok(Arc::clone(launched));
        }
        // A new one begins by clearing up after its predecessors.
        let launched = Arc::new(self.launch().await?);
        Ok(Arc::clone(launcher.insert(launched)))
    }

    async fn launch(&self) -> Result<Launched> {
        let state = &self.options.state_dir;
        let unusable = |error: io::Error| {
            Error::new(
                Code::StateFailed,
                format!("state directory `{}` cannot be used", state.display()),
            )
            .with_source(error)
            .with_remedy("choose another with BELLJAR_STATE_DIR")
        };
        let state_path = std::fs::canonicalize(state).map_err(unusable)?;
        let directory = rustix::fs::open(
            &state_path,
            rustix::fs::OFlags::RDONLY
                | rustix::fs::OFlags::DIRECTORY
                | rustix::fs::OFlags::CLOEXEC,
            rustix::fs::Mode::empty(),
        )
        .map_err(|errno| unusable(errno.into()))?;
        let agent = memory_file::sealed_executable(c"belljar-agent", belljar_agent_image::AGENT)
            .map_err(|error| {
                Error::new(Code::HostUnsupported, "cannot make an executable memory file")
                    .with_source(error)
                    .with_remedy("set the sysctl vm.memfd_noexec to 0 or 1")
            })?;
        let client = Client::spawn(&self.options.launcher).map_err(|error| {
            Error::new(Code::LauncherFailed, "the launcher cannot be started").with_source(error)
        })?;
        let hello = Ask::Hello { state_directory: state_path.as_os_str().as_bytes().to_vec() };
        match client.ask(hello, &[Arc::new(directory), Arc::new(agent)]).await? {
            Answer::Facts(facts) => Ok(Launched { client, facts }),
            other => Err(unexpected(other)),
        }
    }

    async fn ask(&self, ask: Ask, descriptors: &[Arc<OwnedFd>]) -> Result<Answer> {
        match self.launched().await?.client.ask(ask, descriptors).await? {
            Answer::Failed(failure) => Err(explain(&failure)),
            answer => Ok(answer),
        }
    }

    async fn freeze(&self, id: &SandboxId, frozen: bool) -> Result<()> {
        let ask = Ask::Freeze { id: id.as_str().to_owned(), frozen };
        match self.launched().await?.client.ask(ask, &[]).await? {
            Answer::Done => Ok(()),
            Answer::Failed(failure) => {
                let verb = if frozen { "paused" } else { "resumed" };
                Err(Error::new(Code::LauncherFailed, format!("sandbox `{id}` cannot be {verb}"))
                    .with_source(failure))
            }
            other => Err(unexpected(other)),
        }
    }

    fn lock_doors(&self) -> std::sync::MutexGuard<'_, HashMap<SandboxId, Doors>> {
        self.doors.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) async fn host_root(&self, privileged: bool, network: bool) -> Result<&HostRoot> {
        self.hosts[usize::from(network)]
            .get_or_try_init(|| async {
                let templates = self.templates();
                // It copies directories of the host, which takes longer than others are to wait.
                let build = move || HostRoot::build(&templates, privileged, network);
                let built = tokio::task::spawn_blocking(build).await.map_err(io::Error::other);
                built.flatten().map_err(|error| {
                    Error::new(Code::StateFailed, "the host template cannot be put together")
                        .with_source(error)
                })
            })
            .await
    }

    #[must_use]
    pub fn state_dir(&self) -> &Path {
        &self.options.state_dir
    }

    /// Where what roots are made of is kept.
    #[must_use]
    pub fn templates(&self) -> PathBuf {
        self.options.state_dir.join("templates")
    }

    fn sandbox_directory(&self, id: &SandboxId) -> PathBuf {
        self.options.state_dir.join("run/sandboxes").join(id.as_str())
    }

    fn process(&self, id: &SandboxId) -> Option<ProcessIdentity> {
        let text = std::fs::read_to_string(self.sandbox_directory(id).join("process")).ok()?;
        ProcessIdentity::from_text(&text)
    }

    /// Starts and ends a tiny sandbox behind a wall; tells how many milliseconds that took, what would hold one with the
    /// default limits, and why there are no networks, if there are none. Whoever asks bounds the time.
    pub(crate) async fn try_wall(
        &self,
        wall: &Wall,
    ) -> Result<(f64, Vec<Enforcement>, Option<Error>)> {
        let spec = probe::spec();
        let enforcement = self.plan(wall, &spec).await?;
        let started = Instant::now();
        let id = spec.id.clone();
        let mut starting = std::pin::pin!(self.start(wall, spec));
        let running = match tokio::time::timeout(probe::LIMIT, &mut starting).await {
            Ok(running) => running,
            Err(_) => {
                // Nobody else knows of it, so it is not left alone: the launcher gives up by itself, or it comes after all.
                let _ = starting.await;
                Err(probe::late(probe::LIMIT))
            }
        };
        let started = started.elapsed();
        // In the sandbox that is there: nothing is prepared for others that way.
        let doors = if running.is_ok() { self.doors(&id, &[]).await.err() } else { None };
        let stopping = Instant::now();
        let stopped = self.stop(&id).await;
        running?;
        stopped?;
        let taken = started + stopping.elapsed();
        Ok((taken.as_secs_f64() * 1000.0, enforcement, doors))
    }

    /// Every rule of `spec` with the mechanism that will enforce it.
    pub async fn plan(&self, wall: &Wall, spec: &SandboxSpec) -> Result<Vec<Enforcement>> {
        let launched = self.launched().await?;
        let facts = &launched.facts;
        check_identity(spec, facts, wall)?;
        Ok(mechanism::choose(spec, facts, wall)?.enforcement)
    }

    pub async fn start(&self, wall: &Wall, spec: SandboxSpec) -> Result<Running> {
        let launched = self.launched().await?;
        let facts = &launched.facts;
        check_identity(&spec, facts, wall)?;
        let mechanisms = mechanism::choose(&spec, facts, wall)?;
        let mut request = Request::default();
        let search_path = self.root(&spec, facts, wall, &mut request).await?;
        let agent = agent_setup(&spec, facts, wall, &mechanisms, &search_path);
        let id = spec.id.clone();
        let mounts = mounts(spec.mounts, &mut request);
        let masks = self.masks(&spec.masks, facts, &mut request)?;
        let runtime = wall.runtime().map(|runtime| wire::Runtime {
            kind: runtime.kind,
            program: request.tree(&runtime.program),
        });
        let start = Start {
            id: id.as_str().to_owned(),
            hostname: spec.hostname,
            uid: spec.user.uid,
            gid: spec.user.gid,
            root: request.root,
            writable_root: spec.writable_root,
            binds: request.binds,
            mounts,
            masks,
            memory_bytes: mechanisms.memory_bytes,
            cpu_millis: mechanisms.cpu_millis,
            pids: mechanisms.pids,
            disk: mechanisms.disk,
            shared_memory_bytes: mechanisms.shared_memory_bytes,
            service: spec.programs.is_some() || spec.tools,
            doors: spec.network != NetworkMode::None,
            affinity: mechanisms.affinity,
            runtime,
        };
        let mut answer = self.ask_to_start(&start, &request.descriptors).await?;
        // A runtime's first process was seen to be gone before it said anything, once in some thousand starts, for no reason
        // that could be found. Nothing of it is left by then.
        if matches!(&answer.0, Answer::Failed(failure) if failure.stage == "runtime") {
            answer = self.ask_to_start(&start, &request.descriptors).await?;
        }
        let was_ready = match answer {
            (Answer::Started { doors, was_ready }, sockets) => {
                if !doors.is_empty() {
                    self.lock_doors().insert(id.clone(), doors::sort(&doors, sockets));
                }
                was_ready
            }
            (other, _) => return Err(unexpected(other)),
        };
        match self.connect(&id).await {
            Ok(stream) => {
                let enforcement = mechanisms.enforcement;
                Ok(Running { stream, agent, enforcement, was_ready: Some(was_ready) })
            }
            Err(error) => {
                self.stop(&id).await?;
                Err(error)
            }
        }
    }

    async fn ask_to_start(
        &self,
        start: &Start,
        descriptors: &[Arc<OwnedFd>],
    ) -> Result<(Answer, Vec<OwnedFd>)> {
        let ask = Ask::Start(Box::new(start.clone()));
        self.launched().await?.client.ask_for(ask, descriptors).await
    }

    pub async fn connect(&self, id: &SandboxId) -> Result<Stream> {
        let gone = |error: io::Error| {
            Error::new(Code::SandboxGone, format!("sandbox `{id}` does not answer"))
                .with_source(error)
                .with_remedy("it has ended; create a new one")
        };
        // Socket addresses are short and state directories may not be: go through the directory's descriptor.
        let directory = mount::open_directory(self.sandbox_directory(id)).map_err(gone)?;
        let address = format!("/proc/self/fd/{}/agent.sock", directory.as_raw_fd());
        Stream::connect(address).await.map_err(gone)
    }

    pub async fn is_alive(&self, id: &SandboxId) -> Result<bool> {
        Ok(self.process(id).is_some_and(|process| process.open().is_some()))
    }

    pub async fn wait_gone(&self, id: &SandboxId) -> Result<()> {
        let Some(pidfd) = self.process(id).and_then(|process| process.open()) else {
            return Ok(());
        };
        let failed = |error: io::Error| {
            Error::new(Code::Internal, format!("cannot wait for sandbox `{id}`")).with_source(error)
        };
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that may lie; OwnedFd cannot"
        )]
        let pidfd = tokio::io::unix::AsyncFd::with_interest(pidfd, tokio::io::Interest::READABLE)
            .map_err(failed)?;
        pidfd.readable().await.map(|_| ()).map_err(failed)
    }

    pub async fn stop(&self, id: &SandboxId) -> Result<()> {
        self.lock_doors().remove(id);
        let ask = self.ask(Ask::Stop { id: id.as_str().to_owned() }, &[]);
        match tokio::time::timeout(GONE_POLL, ask).await {
            Ok(answer) => answer.map(|_| ()),
            Err(_) => Err(Error::new(Code::LauncherFailed, format!("sandbox `{id}` does not end"))
                .with_remedy(
                    "a process inside hangs in the kernel; try `belljar destroy` again later",
                )),
        }
    }

    pub async fn pause(&self, id: &SandboxId) -> Result<()> {
        if !self.launched().await?.facts.group_kill {
            return Err(Error::new(
                Code::NotEnforceable,
                "nothing on this host can stop a whole sandbox: there is no version 2 cgroup to put it in",
            )
            .with_remedy("run as root, or in a systemd user session with delegated cgroups"));
        }
        self.freeze(id, true).await
    }

    pub async fn resume(&self, id: &SandboxId) -> Result<()> {
        match self.launched().await?.facts.group_kill {
            true => self.freeze(id, false).await,
            false => Ok(()), // it cannot have been paused
        }
    }

    pub async fn doors(&self, id: &SandboxId, udp_ports: &[u16]) -> Result<Option<Doors>> {
        let made = self.lock_doors().remove(id);
        if let Some(doors) = made.filter(|_| udp_ports.is_empty()) {
            return Ok(Some(doors));
        }
        let ask = Ask::Doors { id: id.as_str().to_owned(), udp_ports: udp_ports.to_vec() };
        match self.launched().await?.client.ask_for(ask, &[]).await? {
            (Answer::Doors(doors), sockets) => Ok(Some(doors::sort(&doors, sockets))),
            (Answer::Failed(failure), _) => Err(doors::explain(&failure)),
            (other, _) => Err(unexpected(other)),
        }
    }

    /// The doors of a network namespace that somebody else made, which has no link but loopback; all of them new.
    pub async fn doors_of(&self, namespace: OwnedFd, udp_ports: &[u16]) -> Result<Doors> {
        let ask = Ask::DoorsOf { udp_ports: udp_ports.to_vec() };
        match self.launched().await?.client.ask_for(ask, &[Arc::new(namespace)]).await? {
            (Answer::Doors(kinds), sockets) => Ok(doors::sort(&kinds, sockets)),
            (Answer::Failed(failure), _) => Err(doors::explain(&failure)),
            (other, _) => Err(unexpected(other)),
        }
    }

    /// A stream to the agent that listens at a socket of its own in a network namespace that somebody else made. `None`:
    /// nobody listens there yet, or too many want to be let in.
    pub async fn connect_of(&self, namespace: &Arc<OwnedFd>) -> Result<Option<Stream>> {
        let descriptors = [Arc::clone(namespace)];
        let answer = self.launched().await?.client.ask_for(Ask::ConnectOf, &descriptors).await?;
        let socket = match answer {
            (Answer::Connected, sockets) => sockets.into_iter().next(),
            (Answer::Failed(failure), _) if NOT_YET.contains(&failure.errno) => None,
            (other, _) => return Err(unexpected(other)),
        };
        let unusable = |error: io::Error| {
            Error::new(Code::HostExhausted, "the sandbox's stream cannot be used")
                .with_source(error)
        };
        let Some(socket) = socket else { return Ok(None) };
        // It does not block already.
        Stream::from_std(socket.into()).map(Some).map_err(unusable)
    }

    pub async fn counters(&self, id: &SandboxId) -> Result<Counters> {
        match self.ask(Ask::Counters { id: id.as_str().to_owned() }, &[]).await? {
            Answer::Counters(counters) => Ok(Counters {
                oom_kills: counters.oom_kills,
                pids_refused: counters.pids_refused,
                memory_bytes: counters.memory_bytes,
                memory_peak_bytes: counters.memory_peak_bytes,
                cpu_us: counters.cpu_us,
                pids: counters.pids,
                disk_free_bytes: counters.disk_free_bytes,
                disk_free_inodes: counters.disk_free_inodes,
            }),
            other => Err(unexpected(other)),
        }
    }

    pub async fn reset_workspace_layer(&self, id: &SandboxId) -> Result<()> {
        self.ask(Ask::ResetLayer { id: id.as_str().to_owned() }, &[]).await.map(|_| ())
    }

    pub async fn orphans(&self, known: &[SandboxId]) -> Result<Vec<Orphan>> {
        let found = match self.ask(Ask::Find, &[]).await? {
            Answer::Found(found) => found,
            other => return Err(unexpected(other)),
        };
        Ok(found
            .into_iter()
            .filter(|object| !known.iter().any(|id| object.id.as_deref() == Some(id.as_str())))
            .map(|object| Orphan {
                kind: object.kind,
                name: object.name,
                sandbox: object.id.and_then(|id| SandboxId::parse(&id).ok()),
            })
            .collect())
    }

    pub async fn recover(&self) -> Result<()> {
        let entries = |name: &str| {
            std::fs::read_dir(self.options.state_dir.join(name)).into_iter().flatten().flatten()
        };
        let killed = entries("launchers")
            .any(|marker| !Path::new("/proc").join(marker.file_name()).exists());
        let hanging = entries("run/hanging").next().is_some();
        if killed || hanging {
            self.launched().await?; // a new one begins by clearing up after its predecessors
        }
        Ok(())
    }

    pub async fn close(&self) {
        if let Some(launched) = self.launcher.lock().await.take() {
            launched.client.close().await;
        }
    }
}

/// What no mechanism could make true here.
fn check_identity(spec: &SandboxSpec, facts: &Facts, wall: &Wall) -> Result<()> {
    if let RootSource::Image { name } = &spec.root {
        return Err(Error::no_images(wall.name(), name));
    }
    if wall.runtime().is_some() && !facts.privileged {
        return Err(Error::new(
            Code::NotEnforceable,
            "an OCI runtime needs root here: as an ordinary user it cannot give a sandbox ids and a cgroup of its own",
        )
        .with_remedy("run as root, or use `--backend native`"));
    }
    if !facts.privileged && spec.writable_root && matches!(spec.root, RootSource::Host) {
        return Err(Error::new(
            Code::NotEnforceable,
            "a writable root on the host template needs root: its files belong to a user that an ordinary user cannot map",
        )
        .with_remedy("run as root, or use `--template rootfs:DIR` with a directory that you own"));
    }
    if wall.has_own_kernel()
        && let Some(mask) = masks::below_writable(spec)
    {
        return Err(Error::new(
            Code::NotEnforceable,
            format!("mask `{}` lies below a mount that can be written, where gVisor's kernel could remove what it hides", mask.target.display()),
        )
        .with_remedy("mount it read-only, or use `--backend native`"));
    }
    // With a range, every id below the agent's can be given; with one id, it stands for any.
    if facts.privileged && spec.user.uid >= 65536 {
        return Err(Error::new(
            Code::UserInvalid,
            format!("uid {} is outside the sandbox's ids", spec.user.uid),
        )
        .with_remedy("use an id below 65533"));
    }
    Ok(())
}

fn unexpected(answer: Answer) -> Error {
    match answer {
        Answer::Failed(failure) => explain(&failure),
        _ => Error::new(Code::LauncherFailed, "the launcher gave an answer that fits no question"),
    }
}
