//! The `local` backend: a plain process on this host. No wall at all, for development only.
//!
//! Isolation class `none`. Never chosen by `auto`, refused without the flag that waives isolation, and refused for
//! every promise it cannot keep: network modes, a root other than the host's, mounts, program lists. Limits are
//! reported as not enforced.

#![forbid(unsafe_code)]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use async_trait::async_trait;
use belljar_backend::{
    AgentSetup, Backend, Counters, Doors, Enforcement, Error, IsolationClass, Orphan, Probe,
    Result, RootSource, Running, SandboxSpec, Stream, Subject, TreeKill,
};
use belljar_codes::Code;
use belljar_policy::{NetworkMode, SandboxId};
use belljar_sys::process::{self, ProcessIdentity};

/// How often what a sandbox started is looked for and killed before its agent is.
const KILL_ROUNDS: usize = 100;

/// Plain processes on this host.
#[derive(Debug)]
pub struct Local {
    state_dir: PathBuf,
    /// Agents that this process started, so that it can reap them.
    children: Mutex<HashMap<SandboxId, std::process::Child>>,
}

impl Local {
    #[must_use]
    pub fn new(state_dir: PathBuf) -> Self {
        Self { state_dir, children: Mutex::default() }
    }

    fn directory(&self, id: &SandboxId) -> PathBuf {
        self.state_dir.join("sandboxes").join(id.as_str())
    }

    fn process(&self, id: &SandboxId) -> Option<ProcessIdentity> {
        let text = fs::read_to_string(self.directory(id).join("process")).ok()?;
        ProcessIdentity::from_text(&text)
    }

    fn try_start(&self, spec: &SandboxSpec) -> io::Result<()> {
        let directory = self.directory(&spec.id);
        fs::create_dir_all(directory.join("workspace"))?;
        let listener = std::os::unix::net::UnixListener::bind(directory.join("agent.sock"))?;
        let program = directory.join("belljar-agent"); // the name under which it serves
        fs::write(&program, belljar_agent_image::AGENT)?;
        fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        let mut command = std::process::Command::new(&program);
        command
            .arg("listen=0")
            .stdin(std::process::Stdio::from(OwnedFd::from(listener)))
            .stdout(std::process::Stdio::null())
            // It outlives us: whoever waits for the end of our output must not wait for it.
            .stderr(std::process::Stdio::null());
        let child = spawn(&mut command)?;
        let identity = ProcessIdentity::of(child.id() as i32)?;
        fs::write(directory.join("process"), identity.to_text())?;
        self.children.lock().unwrap_or_else(PoisonError::into_inner).insert(spec.id.clone(), child);
        Ok(())
    }
}

/// Starts a program that was written just now. A child that another thread made meanwhile has it open for writing until it
/// has become its own program, and so long the kernel refuses to run it.
fn spawn(command: &mut std::process::Command) -> io::Result<std::process::Child> {
    let begun = std::time::Instant::now();
    loop {
        match command.spawn() {
            Err(error)
                if error.kind() == io::ErrorKind::ExecutableFileBusy
                    && begun.elapsed() < BUSY_PATIENCE =>
            {
                std::thread::yield_now();
            }
            other => return other,
        }
    }
}

/// How long a program may be held open by a child that is on its way to become another.
const BUSY_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

#[async_trait]
impl Backend for Local {
    fn name(&self) -> &'static str {
        "local"
    }

    fn class(&self) -> Option<IsolationClass> {
        Some(IsolationClass::None)
    }

    async fn probe(&self, _runtime: Option<&str>) -> Probe {
        Probe {
            backend: self.name().to_owned(),
            runtime: None,
            platform: None,
            fast: true,
            works: true,
            class: IsolationClass::None,
            reason: "plain processes on this host; isolates nothing, never chosen by itself"
                .to_owned(),
            remedy: None,
            start_ms: None,
            enforcement: Vec::new(),
        }
    }

    async fn plan(&self, spec: &SandboxSpec) -> Result<Vec<Enforcement>> {
        refuse(
            spec.network != NetworkMode::Full,
            "network",
            "it has the host's own network; ask for `--network full` to say that you know",
        )?;
        if let RootSource::Image { name } = &spec.root {
            return Err(Error::no_images(self.name(), name));
        }
        refuse(!matches!(spec.root, RootSource::Host), "template", "it has no root of its own")?;
        refuse(!spec.mounts.is_empty(), "mounts", "it sees the host's files as they are")?;
        refuse(spec.programs.is_some(), "programs", "it sees the host's programs as they are")?;
        refuse(spec.tools, "tool_allowlist", "it has no place of its own to call tools at")?;
        refuse(spec.writable_root, "writable", "it has no root of its own")?;
        let limits = &spec.limits;
        let asked = limits.memory_bytes.asked
            || limits.cpu_millis.asked
            || limits.pids.asked
            || limits.disk_bytes.asked;
        refuse(asked && !spec.best_effort, "limits", "nothing limits a plain process")?;
        let nothing = |subject| Enforcement {
            subject,
            rule: "none".to_owned(),
            mechanism: "not enforced".to_owned(),
            full: false,
        };
        Ok([
            Subject::Filesystem,
            Subject::Network,
            Subject::Memory,
            Subject::Cpu,
            Subject::Pids,
            Subject::Disk,
            Subject::Syscalls,
            Subject::Identity,
        ]
        .map(nothing)
        .to_vec())
    }

    async fn start(&self, spec: SandboxSpec) -> Result<Running> {
        let enforcement = self.plan(&spec).await?;
        let started = self.try_start(&spec).map_err(|error| {
            Error::new(Code::StartFailed, "the agent cannot be started").with_source(error)
        });
        let stream = match started {
            Ok(()) => self.connect(&spec.id).await,
            Err(error) => Err(error),
        };
        let stream = match stream {
            Ok(stream) => stream,
            Err(error) => {
                self.stop(&spec.id).await?;
                return Err(error);
            }
        };
        let workspace = self.directory(&spec.id).join("workspace").as_os_str().as_bytes().to_vec();
        let mut environment = BTreeMap::new();
        for name in ["PATH", "HOME", "USER"] {
            if let Ok(value) = std::env::var(name) {
                environment.insert(name.to_owned(), value);
            }
        }
        environment.insert("PWD".to_owned(), String::from_utf8_lossy(&workspace).into_owned());
        let agent = AgentSetup {
            tree_kill: TreeKill::Subreaper,
            single_user: true,
            environment,
            working_directory: Some(self.directory(&spec.id).join("workspace")),
            ..AgentSetup::default()
        };
        Ok(Running { stream, agent, enforcement, was_ready: None })
    }

    async fn connect(&self, id: &SandboxId) -> Result<Stream> {
        Stream::connect(self.directory(id).join("agent.sock")).await.map_err(|error| {
            Error::new(Code::SandboxGone, format!("sandbox `{id}` does not answer"))
                .with_source(error)
        })
    }

    async fn is_alive(&self, id: &SandboxId) -> Result<bool> {
        Ok(self.process(id).is_some_and(|process| process.open().is_some()))
    }

    async fn wait_gone(&self, id: &SandboxId) -> Result<()> {
        // The agent closes its end of a fresh stream when it ends, and only then.
        if let Ok(mut stream) = self.connect(id).await {
            let mut byte = [0];
            let _ = tokio::io::AsyncReadExt::read(&mut stream, &mut byte).await;
        }
        Ok(())
    }

    async fn stop(&self, id: &SandboxId) -> Result<()> {
        if let Some(identity) = self.process(id)
            && let Some(pidfd) = identity.open()
        {
            process::kill_descendants(identity.pid, KILL_ROUNDS);
            process::kill(&pidfd).map_err(|error| {
                Error::new(Code::Internal, format!("cannot end sandbox `{id}`")).with_source(error)
            })?;
        }
        let child = self.children.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
        if let Some(mut child) = child {
            let _ = child.wait();
        }
        match fs::remove_dir_all(self.directory(id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(Error::new(Code::StateFailed, format!("cannot remove sandbox `{id}`"))
                    .with_source(error))
            }
            _ => Ok(()),
        }
    }

    async fn pause(&self, _id: &SandboxId) -> Result<()> {
        refuse(
            true,
            "pause",
            "stopping plain processes one by one leaves those that start meanwhile",
        )
    }

    async fn resume(&self, _id: &SandboxId) -> Result<()> {
        Ok(()) // it cannot be paused
    }

    async fn doors(&self, _id: &SandboxId, _udp_ports: &[u16]) -> Result<Option<Doors>> {
        Ok(None) // it has the host's own network
    }

    async fn counters(&self, _id: &SandboxId) -> Result<Counters> {
        Ok(Counters::default())
    }

    async fn reset_workspace_layer(&self, _id: &SandboxId) -> Result<()> {
        refuse(true, "workspace-mode", "it has no layers")
    }

    async fn orphans(&self, _known: &[SandboxId]) -> Result<Vec<Orphan>> {
        Ok(Vec::new()) // its directories are those of the native backend, which reports them
    }

    async fn recover(&self) -> Result<()> {
        Ok(()) // it has no process on the host besides its sandboxes
    }

    async fn close(&self) {}
}

fn refuse(unfit: bool, what: &str, why: &str) -> Result<()> {
    if !unfit {
        return Ok(());
    }
    Err(Error::new(Code::NotEnforceable, format!("the local backend refuses `{what}`: {why}"))
        .with_remedy("use `--backend native`, or drop the option"))
}
