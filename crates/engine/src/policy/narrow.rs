//! What a document says becomes the sandbox. A request may ask for less than the document grants, never for more.
//!
//! What a document does not speak of (disk, user, template) is the caller's, except for what reaches out of the
//! sandbox: directories of the host and the network are there only if the document names them.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::time::Duration;

use belljar_backend::IsolationClass;
use belljar_codes::Code;
use belljar_policy::document::{Document, EnvironmentSection, Isolation};
use belljar_policy::limits::{format_bytes, format_cpus, format_duration, parse_cpus};
use belljar_policy::mounts::WORKSPACE_TARGET;
use belljar_policy::{
    Access, Asked, Environment, MountSpec, NetworkMode, NetworkPolicy, WorkspaceMode, shown,
};

use super::SandboxPolicy;
use crate::{CreateRequest, Error, Result};

/// The request as the policy bounds it.
///
/// # Errors
/// `policy-denied` where it asks for more, naming both; `not-enforceable` where the document wants what no backend does.
pub(super) fn narrow(policy: &SandboxPolicy, request: &mut CreateRequest) -> Result<()> {
    if policy.is_recording() {
        return Ok(());
    }
    let bounds = Bounds { policy, document: &policy.document };
    bounds.limits(request)?;
    bounds.lifetime(request)?;
    bounds.isolation(request);
    bounds.root(request)?;
    bounds.mounts(request)?;
    bounds.read_only(request)?;
    bounds.programs(request)?;
    bounds.network(request)?;
    request.environment = bounds.environment(&request.environment)?;
    Ok(())
}

/// How long a command may run: what was asked for, if the policy allows that long.
pub(super) fn narrow_timeout(
    policy: &SandboxPolicy,
    asked: Option<Duration>,
    by_caller: bool,
) -> Result<Option<Duration>> {
    let document = &policy.document;
    let longest = document.defaults.timeout_seconds.map(Duration::from_secs);
    let Some(longest) = longest.filter(|_| !policy.is_recording()) else { return Ok(asked) };
    match asked {
        Some(asked) if by_caller && asked <= longest => Ok(Some(asked)),
        Some(asked) if by_caller => {
            let asked = format!("a timeout of {}", format_duration(asked));
            Err(wider(policy, asked, format_duration(longest)))
        }
        // Who sets no limit of their own has the policy's.
        _ => Ok(Some(longest)),
    }
}

/// Refuses a lease of `hard` from now on, zero for none, where the policy lets a sandbox of that age live less long.
pub(super) fn narrow_lease(policy: &SandboxPolicy, age: Duration, hard: Duration) -> Result<()> {
    let longest = policy.document.processes.as_ref().and_then(|p| p.lifetime_seconds);
    let Some(longest) = longest.map(Duration::from_secs) else { return Ok(()) };
    if policy.is_recording() || (!hard.is_zero() && age + hard <= longest) {
        return Ok(());
    }
    let asked = match hard {
        Duration::ZERO => "a life without end".to_owned(),
        hard => format!("another {}", format_duration(hard)),
    };
    Err(wider(policy, asked, format!("{} from its creation on", format_duration(longest))))
}

/// What a command finds in its environment beside the sandbox's own, if the policy allows all of it.
pub(super) fn check_environment(policy: &SandboxPolicy, asked: &Environment) -> Result<()> {
    if policy.is_recording() {
        return Ok(());
    }
    let Some(section) = &policy.document.environment else { return Ok(()) };
    // What a terminal is called says nothing.
    let asked = asked.iter().filter(|(name, _)| !matches!(*name, "TERM" | "COLORTERM"));
    for (name, value) in asked {
        if !may_set(section, name, value) {
            let names = section.allow.as_ref().map_or_else(
                || format!("`{name}` as it is"),
                |allow| format!("[{}]", allow.join(", ")),
            );
            return Err(wider(policy, format!("environment variable `{name}`"), names));
        }
    }
    Ok(())
}

/// Names that the document lists, and otherwise all that it does not set itself.
fn may_set(section: &EnvironmentSection, name: &str, value: &str) -> bool {
    match &section.allow {
        Some(allow) if allow.iter().any(|known| known == name) => true,
        Some(_) => section.set.get(name) == Some(value),
        None => section.set.get(name).is_none_or(|set| set == value),
    }
}

struct Bounds<'a> {
    policy: &'a SandboxPolicy,
    document: &'a Document,
}

impl Bounds<'_> {
    fn limits(&self, request: &mut CreateRequest) -> Result<()> {
        let defaults = &self.document.defaults;
        let names_limits = defaults.max_cpu.is_some()
            || defaults.max_memory_mb.is_some()
            || self.document.processes.as_ref().is_some_and(|processes| processes.count.is_some());
        if request.best_effort && names_limits {
            let asked = "accepting weaker mechanisms for limits";
            return Err(wider(self.policy, asked, "limits that hold"));
        }
        let limits = &mut request.limits;
        let memory = defaults.max_memory_mb.map(|mib| mib << 20);
        self.limit("memory", &mut limits.memory_bytes, memory, |bytes| format_bytes(*bytes))?;
        let cpus = defaults.max_cpu.and_then(|cpus| parse_cpus(&cpus.to_string()).ok());
        self.limit("CPUs", &mut limits.cpu_millis, cpus, |millis| format_cpus(*millis))?;
        let count = self.document.processes.as_ref().and_then(|processes| processes.count);
        self.limit("processes", &mut limits.pids, count, u32::to_string)
    }

    fn limit<T: Copy + Ord>(
        &self,
        what: &str,
        asked: &mut Asked<T>,
        granted: Option<T>,
        show: impl Fn(&T) -> String,
    ) -> Result<()> {
        match granted {
            None => Ok(()),
            Some(granted) if asked.asked && asked.value > granted => {
                Err(wider(self.policy, format!("{what} {}", show(&asked.value)), show(&granted)))
            }
            Some(granted) => {
                if !asked.asked {
                    *asked = Asked::by_caller(granted);
                }
                Ok(())
            }
        }
    }

    fn lifetime(&self, request: &mut CreateRequest) -> Result<()> {
        let longest = self.document.processes.as_ref().and_then(|p| p.lifetime_seconds);
        if let Some(longest) = longest.map(Duration::from_secs) {
            match request.hard_limit {
                Some(asked) if asked > longest => {
                    let asked = format!("a lease of {}", format_duration(asked));
                    return Err(wider(self.policy, asked, format_duration(longest)));
                }
                Some(_) => {}
                None => request.hard_limit = Some(longest),
            }
        }
        let by_caller = request.timeout.is_some();
        request.timeout = narrow_timeout(self.policy, request.timeout, by_caller)?;
        Ok(())
    }

    fn isolation(&self, request: &mut CreateRequest) {
        let Some(floor) = self.document.isolation else { return };
        let floor = match floor {
            Isolation::Namespace => IsolationClass::Namespace,
            Isolation::Kernel => IsolationClass::Kernel,
            Isolation::Vm => IsolationClass::Vm,
        };
        let rank = |class: IsolationClass| match class {
            IsolationClass::None | IsolationClass::Wasm => 0,
            IsolationClass::Namespace => 1,
            IsolationClass::Kernel => 2,
            IsolationClass::Vm => 3,
        };
        let asked = request.isolation_floor.filter(|asked| rank(*asked) > rank(floor));
        request.isolation_floor = Some(asked.unwrap_or(floor));
    }

    fn root(&self, request: &mut CreateRequest) -> Result<()> {
        match self.document.filesystem.as_ref().and_then(|section| section.writable_root) {
            Some(false) if request.writable => {
                Err(wider(self.policy, "a writable root", "a root that is not"))
            }
            Some(true) => {
                request.writable = true;
                Ok(())
            }
            Some(false) | None => Ok(()),
        }
    }

    /// The document's directories, and those of the request that are among them.
    fn mounts(&self, request: &mut CreateRequest) -> Result<()> {
        let mut granted = Vec::new();
        for mount in self.document.mounts() {
            let source = PathBuf::from(&mount.source);
            if !source.is_absolute() {
                let message =
                    format!("the policy mounts `{}`, which is no full path", shown(&mount.source));
                return Err(Error::new(Code::InvalidPolicy, message)
                    .with_remedy("write the whole path in the document"));
            }
            let target = PathBuf::from(mount.target.as_str());
            granted.push(MountSpec { source, target, access: mount.access.access() });
        }
        for mount in &request.mounts {
            self.grants(&granted, &mount.source, mount.access)?;
        }
        if let Some(workspace) = &request.workspace {
            // Changes in a layer stay in the sandbox.
            let access = match workspace.mode {
                WorkspaceMode::Bind => Access::ReadWrite,
                WorkspaceMode::BindReadOnly | WorkspaceMode::Overlay => Access::ReadOnly,
            };
            self.grants(&granted, &workspace.path, access)?;
        }
        let workspace = request.workspace.as_ref().map(|_| Path::new(WORKSPACE_TARGET));
        let taken: Vec<PathBuf> = request.mounts.iter().map(|mount| mount.target.clone()).collect();
        let free = |mount: &MountSpec| {
            !taken.contains(&mount.target) && workspace != Some(mount.target.as_path())
        };
        request.mounts.extend(granted.into_iter().filter(free));
        Ok(())
    }

    fn grants(&self, granted: &[MountSpec], source: &Path, access: Access) -> Result<()> {
        let same = |mount: &MountSpec| {
            mount.source == source
                || matches!((mount.source.canonicalize(), source.canonicalize()), (Ok(a), Ok(b)) if a == b)
        };
        let enough =
            |mount: &MountSpec| mount.access == Access::ReadWrite || access == Access::ReadOnly;
        if granted.iter().any(|mount| same(mount) && enough(mount)) {
            return Ok(());
        }
        let asked =
            format!("directory `{}` ({})", shown(&source.to_string_lossy()), access.as_str());
        let list: Vec<String> = granted
            .iter()
            .map(|mount| format!("`{}` ({})", mount.source.display(), mount.access.as_str()))
            .collect();
        let list = if list.is_empty() { "none".to_owned() } else { list.join(", ") };
        Err(wider(self.policy, asked, format!("directories: {list}")))
    }

    /// Paths that stay as they are: those of a root that is not written do; a mount above or at one is made read-only.
    fn read_only(&self, request: &mut CreateRequest) -> Result<()> {
        const OWN: [&str; 4] = [WORKSPACE_TARGET, "/tmp", "/output", "/home/user"];
        let paths = self.document.filesystem.iter().flat_map(|section| &section.read_only);
        for path in paths.map(|path| Path::new(path.as_str())) {
            for mount in &mut request.mounts {
                if mount.target.starts_with(path) {
                    mount.access = Access::ReadOnly;
                }
            }
            if let Some(workspace) = &mut request.workspace
                && Path::new(WORKSPACE_TARGET).starts_with(path)
            {
                workspace.mode = WorkspaceMode::BindReadOnly;
            }
            let shown_as_read_only = |place: &str| {
                let mount = request.mounts.iter().find(|mount| mount.target == Path::new(place));
                mount.is_some_and(|mount| mount.access == Access::ReadOnly)
                    || (place == WORKSPACE_TARGET
                        && request
                            .workspace
                            .as_ref()
                            .is_some_and(|workspace| workspace.mode == WorkspaceMode::BindReadOnly))
            };
            let own = OWN.iter().filter(|place| !shown_as_read_only(place)).map(Path::new);
            let written = request.mounts.iter().filter(|m| m.access == Access::ReadWrite);
            let mut places = own.chain(written.map(|mount| mount.target.as_path()));
            let overlaps = |place: &Path| path.starts_with(place) || place.starts_with(path);
            if request.writable || places.any(overlaps) {
                let message = format!(
                    "policy `{}` keeps `{}` read-only, which is inside what can be written",
                    shown(&self.policy.name),
                    shown(&path.to_string_lossy())
                );
                return Err(Error::new(Code::NotEnforceable, message).with_remedy(
                    "name mounts or places outside of `/workspace`, `/tmp`, `/output` and `/home/user`",
                ));
            }
        }
        Ok(())
    }

    fn programs(&self, request: &mut CreateRequest) -> Result<()> {
        let Some(granted) = &self.document.programs else { return Ok(()) };
        match &request.programs {
            None => request.programs = Some(granted.clone()),
            Some(asked) => {
                if let Some(more) = asked.iter().find(|name| !granted.contains(name)) {
                    let asked = format!("program `{}`", shown(more));
                    return Err(wider(self.policy, asked, format!("programs {granted}")));
                }
            }
        }
        Ok(())
    }

    /// Without a word from the caller the rules are the document's own; hosts that a caller names are among them.
    fn network(&self, request: &mut CreateRequest) -> Result<()> {
        let granted = self.document.network_mode();
        if let Some(range) = request.network_cidrs.first() {
            return Err(wider(self.policy, format!("addresses `{range}`"), "public addresses"));
        }
        if request.network_ask.is_some() {
            return Err(wider(self.policy, "asking for approval", "what its own rules ask for"));
        }
        if request.network_callback.connections {
            let asked = "decisions of a program about connections";
            return Err(wider(self.policy, asked, "what its own rules ask for"));
        }
        if !request.network_asked {
            request.network = NetworkPolicy { mode: granted, allow: Vec::new() };
            return Ok(());
        }
        let rank = |mode: NetworkMode| match mode {
            NetworkMode::None => 0,
            NetworkMode::Allowlist => 1,
            NetworkMode::Full => 2,
        };
        let asked = &request.network;
        if rank(asked.mode) > rank(granted) {
            let (asked, granted) = (format!("network `{}`", asked.mode), format!("`{granted}`"));
            return Err(wider(self.policy, asked, granted));
        }
        if let Some(host) = asked.allow.iter().find(|host| !self.document.names_host(host)) {
            return Err(wider(self.policy, format!("host `{host}`"), "other hosts"));
        }
        Ok(())
    }

    fn environment(&self, asked: &Environment) -> Result<Environment> {
        check_environment(self.policy, asked)?;
        let Some(section) = &self.document.environment else { return Ok(asked.clone()) };
        let mut together = section.set.clone();
        for (name, value) in asked.iter() {
            together.set(name, value)?;
        }
        Ok(together)
    }
}

fn wider(policy: &SandboxPolicy, asked: impl Display, granted: impl Display) -> Error {
    let name = shown(&policy.name);
    Error::new(
        Code::PolicyDenied,
        format!("{asked} is more than policy `{name}` grants: {granted}"),
    )
    .with_remedy("ask for no more than the policy grants, or have it changed")
}

#[cfg(test)]
#[path = "narrow_tests.rs"]
mod tests;
