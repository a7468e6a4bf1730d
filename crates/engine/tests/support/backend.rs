//! A backend whose sandboxes are directories, so that they outlive the process that made them, and whose agents are
//! tasks of this process, so that they do not.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use belljar_backend::{
    AgentSetup, Backend, Counters, Doors, Enforcement, Error, IsolationClass, Offer, Orphan, Probe,
    Result, Running, SandboxSpec, Stream, Subject,
};
use belljar_codes::Code;
use belljar_policy::{NetworkMode, SandboxId};

use super::agent::FakeAgent;

pub struct FakeBackend {
    name: &'static str,
    objects: PathBuf,
    agents: Mutex<HashMap<SandboxId, Arc<FakeAgent>>>,
    /// The sandboxes that are paused; their agents answer all the same.
    pub paused: Mutex<HashSet<SandboxId>>,
    pub fail_start: AtomicBool,
    /// The next stop fails.
    pub fail_stop: AtomicBool,
    /// What happens when a sandbox has been started, and before it is stopped.
    pub on_start: Mutex<Option<Box<dyn Fn() + Send>>>,
    pub on_stop: Mutex<Option<Box<dyn Fn() + Send>>>,
    pub probes: AtomicUsize,
    pub works: AtomicBool,
    pub fast: AtomicBool,
    /// What a probe says, and what would run.
    pub class: Mutex<IsolationClass>,
    pub runtime: Mutex<Option<&'static str>>,
    pub resets: AtomicUsize,
}

impl FakeBackend {
    pub fn new(objects: &Path) -> Arc<Self> {
        Self::named("fake", objects)
    }

    pub fn named(name: &'static str, objects: &Path) -> Arc<Self> {
        std::fs::create_dir_all(objects).unwrap();
        Arc::new(Self {
            name,
            objects: objects.to_owned(),
            agents: Mutex::default(),
            paused: Mutex::default(),
            fail_start: AtomicBool::new(false),
            fail_stop: AtomicBool::new(false),
            on_start: Mutex::default(),
            on_stop: Mutex::default(),
            probes: AtomicUsize::new(0),
            works: AtomicBool::new(true),
            fast: AtomicBool::new(true),
            class: Mutex::new(IsolationClass::Namespace),
            runtime: Mutex::default(),
            resets: AtomicUsize::new(0),
        })
    }

    /// The sandboxes that exist, whoever made them.
    pub fn objects(&self) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(&self.objects)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    pub fn agent(&self, id: &SandboxId) -> Arc<FakeAgent> {
        Arc::clone(&self.agents.lock().unwrap()[id])
    }

    /// What a crash of the whole sandbox leaves.
    pub fn kill_agent(&self, id: &SandboxId) {
        if let Some(agent) = self.agents.lock().unwrap().remove(id) {
            agent.die();
        }
        let _ = std::fs::remove_file(self.objects.join(id.as_str()).join("alive"));
    }
}

#[async_trait::async_trait]
impl Backend for FakeBackend {
    fn name(&self) -> &'static str {
        self.name
    }

    fn class(&self) -> Option<IsolationClass> {
        (self.name == "local").then_some(IsolationClass::None)
    }

    fn offer(&self) -> Offer {
        Offer {
            strongest: self.class().unwrap_or(IsolationClass::Vm),
            runtimes: self.runtime.lock().unwrap().map(str::to_owned).into_iter().collect(),
            fingerprint: String::new(),
        }
    }

    async fn probe(&self, _runtime: Option<&str>) -> Probe {
        self.probes.fetch_add(1, Ordering::Relaxed);
        Probe {
            backend: self.name.to_owned(),
            runtime: self.runtime.lock().unwrap().map(str::to_owned),
            platform: None,
            fast: self.fast.load(Ordering::Relaxed),
            works: self.works.load(Ordering::Relaxed),
            class: *self.class.lock().unwrap(),
            reason: "it is a fake".to_owned(),
            remedy: None,
            start_ms: None,
            enforcement: Vec::new(),
        }
    }

    async fn plan(&self, spec: &SandboxSpec) -> Result<Vec<Enforcement>> {
        if spec.network != NetworkMode::None {
            return Err(Error::new(Code::NotEnforceable, "no network here"));
        }
        Ok(vec![Enforcement {
            subject: Subject::Network,
            rule: "no network".to_owned(),
            mechanism: "nothing is real".to_owned(),
            full: true,
        }])
    }

    async fn start(&self, spec: SandboxSpec) -> Result<Running> {
        let enforcement = self.plan(&spec).await?;
        let directory = self.objects.join(spec.id.as_str());
        std::fs::create_dir(&directory).unwrap();
        if self.fail_start.load(Ordering::Relaxed) {
            std::fs::remove_dir(&directory).unwrap();
            return Err(Error::new(Code::StartFailed, "told to fail").with_remedy("do not"));
        }
        std::fs::write(directory.join("alive"), "").unwrap();
        if let Some(act) = &*self.on_start.lock().unwrap() {
            act();
        }
        let agent = FakeAgent::new();
        let stream = agent.connect();
        self.agents.lock().unwrap().insert(spec.id, agent);
        Ok(Running { stream, agent: AgentSetup::default(), enforcement, was_ready: None })
    }

    async fn connect(&self, id: &SandboxId) -> Result<Stream> {
        match self.agents.lock().unwrap().get(id) {
            Some(agent) => Ok(agent.connect()),
            None => Err(Error::new(Code::AgentFailed, "no agent in this process")),
        }
    }

    async fn is_alive(&self, id: &SandboxId) -> Result<bool> {
        Ok(self.objects.join(id.as_str()).join("alive").exists())
    }

    async fn wait_gone(&self, _id: &SandboxId) -> Result<()> {
        Ok(())
    }

    async fn stop(&self, id: &SandboxId) -> Result<()> {
        if self.fail_stop.swap(false, Ordering::Relaxed) {
            return Err(Error::new(Code::LauncherFailed, "told to fail"));
        }
        if let Some(act) = &*self.on_stop.lock().unwrap() {
            act();
        }
        self.kill_agent(id);
        let _ = std::fs::remove_dir_all(self.objects.join(id.as_str()));
        Ok(())
    }

    async fn pause(&self, id: &SandboxId) -> Result<()> {
        if self.name == "local" {
            return Err(Error::new(Code::NotEnforceable, "told to refuse"));
        }
        self.paused.lock().unwrap().insert(id.clone());
        Ok(())
    }

    async fn resume(&self, id: &SandboxId) -> Result<()> {
        self.paused.lock().unwrap().remove(id);
        Ok(())
    }

    async fn doors(&self, _id: &SandboxId, _udp_ports: &[u16]) -> Result<Option<Doors>> {
        Ok(None)
    }

    async fn counters(&self, id: &SandboxId) -> Result<Counters> {
        match self.agents.lock().unwrap().get(id) {
            Some(agent) => Ok(*agent.counters.lock().unwrap()),
            None => Err(Error::new(Code::SandboxGone, "gone")),
        }
    }

    async fn reset_workspace_layer(&self, id: &SandboxId) -> Result<()> {
        self.resets.fetch_add(1, Ordering::Relaxed);
        self.agent(id).layer.lock().unwrap().clear();
        Ok(())
    }

    async fn close(&self) {}

    async fn recover(&self) -> Result<()> {
        Ok(())
    }

    async fn orphans(&self, known: &[SandboxId]) -> Result<Vec<Orphan>> {
        let orphan = |name: String| Orphan {
            kind: "directory".to_owned(),
            sandbox: SandboxId::parse(&name).ok(),
            name,
        };
        let is_unknown = |name: &String| !known.iter().any(|id| id.as_str() == name);
        Ok(self.objects().into_iter().filter(is_unknown).map(orphan).collect())
    }
}
