//! From what was asked to what will be started.
//!
//! Everything that can be refused is refused here, before anything is made or recorded.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use belljar_backend::{Backend, Enforcement, IsolationClass, SandboxSpec, Subject, UserIds};
use belljar_codes::Code;
use belljar_policy::limits::DEFAULT_TIMEOUT;
use belljar_policy::mounts::WORKSPACE_TARGET;
use belljar_policy::{Access, Environment, Family, SandboxId, TenantId, WorkspaceMode};
use sha2::{Digest, Sha256};

use crate::engine::Inner;
use crate::mounts::{self, OpenDirectory, Protected};
use crate::network::NetworkRecord;
use crate::store::{Details, EnforcementRecord, WorkspaceRecord};
use crate::time::now_ns;
use crate::{
    BackendChoice, CreateRequest, DEFAULT_IDLE_TIMEOUT, Error, Result, masks, policy, random,
    template, volume,
};

/// Where a sandbox's own files may be written unless the whole root is writable.
const WRITABLE: [&str; 4] = [WORKSPACE_TARGET, "/tmp", "/output", "/home/user"];

/// Labels are for finding sandboxes, not for storing things.
const MAX_LABELS: usize = 64;
const MAX_LABEL: usize = 1024;
const MAX_METADATA_KEY: usize = 256;
const MAX_METADATA: usize = 4096;

/// A sandbox that could be started now.
pub(crate) struct Plan {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) class: IsolationClass,
    pub(crate) backend_reason: String,
    pub(crate) template: String,
    pub(crate) template_reason: String,
    pub(crate) family: Option<Family>,
    pub(crate) spec: SandboxSpec,
    pub(crate) workspace: Option<WorkspaceRecord>,
    pub(crate) writable_paths: Vec<String>,
    pub(crate) environment: Environment,
    pub(crate) stripped_environment: Vec<String>,
    /// Where commands start; `None`: where the backend says, or in the workspace.
    pub(crate) workdir: Option<PathBuf>,
    pub(crate) idle: Option<Duration>,
    pub(crate) timeout: Duration,
    /// The same for every request that means the same sandbox.
    pub(crate) shape: String,
}

impl Plan {
    pub(crate) async fn new(
        inner: &Inner,
        tenant: &TenantId,
        request: &CreateRequest,
    ) -> Result<Self> {
        check_labels(&request.labels)?;
        check_metadata(request)?;
        let workdir = workdir(request)?;
        let protected = Protected { home: inner.home(), state: inner.directory.root() };
        let (workspace, mut mounts) =
            mounts::resolve(request.workspace.as_ref(), &request.mounts, protected)?;
        if let Some(volume) = &request.volume {
            mounts.push(volume::resolve(inner, tenant, volume, &mounts)?);
        }
        let masks = masks::resolve(&request.masks, &mounts)?;
        let template = template::resolve(request, workspace.as_ref(), protected)?;
        let chosen = inner.backends.choose(request).await?;
        let (environment, stripped_environment) = request.environment.clone().strip();
        let id = random::sandbox_id(inner.store.node())?;
        let hostname = hostname(request, &id);
        let mut plan = Self {
            backend: chosen.backend,
            class: chosen.class,
            backend_reason: chosen.reason,
            template: template.name,
            template_reason: template.reason,
            family: template.family,
            workspace: record_of(request, workspace),
            writable_paths: Vec::new(),
            spec: SandboxSpec {
                id,
                root: template.root,
                writable_root: request.writable,
                mounts,
                covers: Vec::new(),
                masks,
                limits: request.limits,
                best_effort: request.best_effort,
                network: request.network.mode,
                user: UserIds { uid: request.user.uid(), gid: request.user.gid() },
                hostname,
                programs: request.programs.clone(),
                tools: policy::resolved(request).is_some_and(|policy| policy.has_tools()),
                runtime: chosen.runtime,
            },
            environment,
            stripped_environment,
            workdir,
            idle: Some(request.idle_timeout.unwrap_or(DEFAULT_IDLE_TIMEOUT))
                .filter(|idle| !idle.is_zero()),
            timeout: request.timeout.unwrap_or(DEFAULT_TIMEOUT),
            shape: String::new(),
        };
        plan.writable_paths = plan.writable();
        plan.shape = plan.shape_of(request);
        Ok(plan)
    }

    pub(crate) fn id(&self) -> &SandboxId {
        &self.spec.id
    }

    /// What is recorded about the sandbox.
    pub(crate) fn details(&self, request: &CreateRequest, rules: &[Enforcement]) -> Details {
        Details {
            template: self.template.clone(),
            family: self.family.map(|family| family.as_str().to_owned()),
            class: self.class.as_str().to_owned(),
            runtime: self.spec.runtime.clone(),
            backend_reason: self.backend_reason.clone(),
            network_mode: self.spec.network.as_str().to_owned(),
            network_enforcement: network_enforcement(rules),
            network: NetworkRecord::of(request),
            writable_paths: self.writable_paths.clone(),
            timeout_secs: self.timeout.as_secs(),
            enforcement: rules.iter().map(EnforcementRecord::from).collect(),
            labels: request.labels.clone(),
            metadata: request.metadata.clone(),
            limits: request.limits,
            workspace: self.workspace.clone(),
            user: request.user.to_string(),
            shape: self.shape.clone(),
            stripped_environment: self.stripped_environment.clone(),
            workdir: self.workdir.as_ref().map(|path| path.to_string_lossy().into_owned()),
            policy: policy::resolved(request).map(|policy| policy.reference().into()),
        }
    }

    fn writable(&self) -> Vec<String> {
        let mounts = &self.spec.mounts;
        let is_read_only = |path: &str| {
            mounts.iter().any(|m| m.target == Path::new(path) && m.access == Access::ReadOnly)
        };
        let mut paths: Vec<String> = if self.spec.writable_root {
            vec!["/".to_owned()]
        } else {
            WRITABLE.into_iter().filter(|path| !is_read_only(path)).map(str::to_owned).collect()
        };
        let writable = mounts.iter().filter(|mount| mount.access == Access::ReadWrite);
        for path in writable.map(|mount| mount.target.display().to_string()) {
            if !paths.contains(&path) {
                paths.push(path);
            }
        }
        paths
    }

    /// A hash over everything that makes two requests mean the same automatic session.
    fn shape_of(&self, request: &CreateRequest) -> String {
        let mut hash = Sha256::new();
        let mut add = |part: &[u8]| {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        };
        add(self.template.as_bytes());
        add(self.family.map_or("", Family::as_str).as_bytes());
        add(match &request.backend {
            BackendChoice::Auto => "auto",
            BackendChoice::Named(name) => name,
        }
        .as_bytes());
        add(request.runtime.as_deref().unwrap_or("").as_bytes());
        add(request.isolation_floor.map_or("", IsolationClass::as_str).as_bytes());
        add(request.network.mode.as_str().as_bytes());
        for host in &request.network.allow {
            add(host.to_string().as_bytes());
        }
        for cidr in &request.network_cidrs {
            add(cidr.to_string().as_bytes());
        }
        add(&request.network_ask.unwrap_or_default().as_millis().to_le_bytes());
        let callback = request.network_callback;
        add(&[u8::from(callback.connections), u8::from(callback.requests)]);
        for port in &request.network_callback_udp {
            add(&port.to_le_bytes());
        }
        for mount in &self.spec.mounts {
            add(mount.source.path.as_os_str().as_bytes());
            add(mount.target.as_os_str().as_bytes());
            add(mount.access.as_str().as_bytes());
            add(&[u8::from(mount.overlay)]);
        }
        for mask in &self.spec.masks {
            add(b"mask");
            add(mask.target.as_os_str().as_bytes());
        }
        add(request.user.to_string().as_bytes());
        add(&[u8::from(request.writable), u8::from(request.best_effort)]);
        for program in request.programs.iter().flat_map(|programs| programs.iter()) {
            add(program.as_bytes());
        }
        let limits = &request.limits;
        for (value, asked) in [
            (limits.memory_bytes.value, limits.memory_bytes.asked),
            (limits.cpu_millis.value.into(), limits.cpu_millis.asked),
            (limits.pids.value.into(), limits.pids.asked),
            (limits.disk_bytes.value, limits.disk_bytes.asked),
            (limits.disk_inodes.value, limits.disk_inodes.asked),
        ] {
            add(&value.to_le_bytes());
            add(&[u8::from(asked)]);
        }
        if let Some(policy) = policy::resolved(request) {
            add(policy.digest.as_bytes());
            add(&[u8::from(policy.is_recording())]);
        }
        hex(&hash.finalize()[..8])
    }
}

/// What enforces the network mode.
pub(crate) fn network_enforcement(rules: &[Enforcement]) -> String {
    rules
        .iter()
        .find(|rule| rule.subject == Subject::Network)
        .map_or_else(|| "nothing".to_owned(), |rule| rule.mechanism.clone())
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn record_of(request: &CreateRequest, directory: Option<OpenDirectory>) -> Option<WorkspaceRecord> {
    let (request, directory) = (request.workspace.as_ref()?, directory?);
    Some(WorkspaceRecord {
        path: directory.path.as_os_str().as_bytes().to_vec(),
        mode: request.mode.as_str().to_owned(),
        device: directory.device,
        inode: directory.inode,
        layer_since: if request.mode == WorkspaceMode::Overlay { now_ns() } else { 0 },
    })
}

fn hostname(request: &CreateRequest, id: &SandboxId) -> String {
    // A name may have characters that a host name may not.
    let plain = |name: &&str| name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
    let name = request.name.as_ref().map(belljar_policy::SandboxName::as_str).filter(plain);
    name.unwrap_or_else(|| id.as_str()).to_owned()
}

fn workdir(request: &CreateRequest) -> Result<Option<PathBuf>> {
    request
        .workdir
        .as_ref()
        .map(|path| check_path(path).map(|()| Path::new("/").join(path)))
        .transpose()
}

/// A path inside a sandbox that can be sent there. Whether it leads anywhere is for the kernel to say, inside.
pub(crate) fn check_path(path: &Path) -> Result<()> {
    let bytes = path.as_os_str().as_bytes();
    let reason = if bytes.is_empty() {
        "is empty"
    } else if bytes.contains(&0) {
        "contains a NUL byte"
    } else if bytes.len() >= 4096 {
        "is too long"
    } else {
        return Ok(());
    };
    let shown = belljar_policy::shown(&path.to_string_lossy());
    Err(Error::new(Code::InvalidArgument, format!("path `{shown}` {reason}"))
        .with_remedy("name a path inside the sandbox"))
}

pub(crate) fn check_labels(labels: &BTreeMap<String, String>) -> Result<()> {
    let refuse = |what: String| {
        Err(Error::new(Code::InvalidArgument, what)
            .with_remedy("use a few short labels without control characters"))
    };
    if labels.len() > MAX_LABELS {
        return refuse(format!("{} labels are more than {MAX_LABELS}", labels.len()));
    }
    for (key, value) in labels {
        if key.is_empty() || key.len() + value.len() > MAX_LABEL {
            return refuse(format!("label `{}` is empty or too long", belljar_policy::shown(key)));
        }
        if key.chars().chain(value.chars()).any(char::is_control) {
            let key = belljar_policy::shown(key);
            return refuse(format!("label `{key}` contains a control character"));
        }
    }
    Ok(())
}

/// Values of metadata are free text; their names are not.
fn check_metadata(request: &CreateRequest) -> Result<()> {
    let refuse = |what: String| {
        Err(Error::new(Code::InvalidArgument, what)
            .with_remedy("keep large things in files; metadata is for a few short texts"))
    };
    if request.metadata.len() > MAX_LABELS {
        return refuse(format!("{} metadata are more than {MAX_LABELS}", request.metadata.len()));
    }
    for (key, value) in &request.metadata {
        let shown = belljar_policy::shown(key);
        if key.is_empty() || key.len() > MAX_METADATA_KEY || value.len() > MAX_METADATA {
            return refuse(format!("metadata `{shown}` is empty or too long"));
        }
        if key.chars().any(char::is_control) {
            return refuse(format!("metadata `{shown}` has a control character in its name"));
        }
    }
    Ok(())
}
