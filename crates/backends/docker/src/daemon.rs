//! The engine that is spoken to, and what it said about itself.

use std::path::{Path, PathBuf};

use belljar_backend::{Error, IsolationClass, Result};
use belljar_codes::Code;
use bollard::models::{SystemInfo, SystemVersion};
use bollard::{API_DEFAULT_VERSION, Docker as Client};

use crate::failure::failed;

/// How the backend is set up.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// `unix://PATH`, or `tcp://HOST:PORT` for an engine elsewhere. Absent: the usual sockets of Docker and of Podman.
    pub host: Option<String>,
    /// The runtime that the engine is to use. Absent: the strongest that it has and that works.
    pub runtime: Option<String>,
    /// Fetch images that the engine does not have.
    pub pull: bool,
    /// Refuse images that do not say that they were hardened.
    pub require_hardened_image: bool,
}

const USUAL_SOCKETS: [&str; 2] = ["/var/run/docker.sock", "/run/podman/podman.sock"];
/// How long one request may take; starting a container on a busy machine is the slowest.
const TIMEOUT_SECONDS: u64 = 120;

/// An engine that answers.
#[derive(Debug)]
pub(crate) struct Daemon {
    pub(crate) client: Client,
    pub(crate) facts: Facts,
}

/// What the engine said about itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts {
    pub(crate) address: String,
    pub(crate) version: String,
    /// It is Podman, which takes some things otherwise (see [`crate::podman`]).
    pub(crate) podman: bool,
    /// It is on this host and we may look at its processes: paths and process numbers mean the same to both.
    pub(crate) near: bool,
    /// The names of its runtimes, and which of them it uses unasked.
    pub(crate) runtimes: Vec<String>,
    pub(crate) usual_runtime: Option<String>,
    pub(crate) app_armor: bool,
    /// Its containers have user ids of their own.
    pub(crate) own_ids: bool,
    pub(crate) memory: bool,
    pub(crate) swap: bool,
    pub(crate) cpu: bool,
    pub(crate) pids: bool,
}

impl Daemon {
    pub(crate) async fn connect(options: &Options) -> Result<Self> {
        let address = match &options.host {
            Some(host) => host.clone(),
            None => usual()?,
        };
        let unreachable = |error| {
            let mut error = failed(format!("no container engine answers at `{address}`"), error);
            error.code = Code::BackendUnavailable;
            error
        };
        let client = match address.strip_prefix("tcp://").or(address.strip_prefix("http://")) {
            Some(_) => Client::connect_with_http(&address, TIMEOUT_SECONDS, API_DEFAULT_VERSION),
            None => Client::connect_with_unix(&address, TIMEOUT_SECONDS, API_DEFAULT_VERSION),
        };
        let client = client.map_err(unreachable)?.negotiate_version().await.map_err(unreachable)?;
        let version = client.version().await.map_err(unreachable)?;
        let info = client.info().await.map_err(unreachable)?;
        let local = !(address.starts_with("tcp://") || address.starts_with("http://"));
        let near = local && rustix::process::geteuid().is_root();
        let facts = Facts::new(address, near, is_podman(&version), info);
        Ok(Self { client, facts })
    }
}

fn usual() -> Result<String> {
    let found = USUAL_SOCKETS.into_iter().find(|path| Path::new(path).exists());
    found.map(|path| format!("unix://{path}")).ok_or_else(|| {
        let message = format!("there is no container engine at {}", USUAL_SOCKETS.join(" or "));
        Error::new(Code::BackendUnavailable, message).with_remedy(
            "start Docker or Podman's service, or name its socket with BELLJAR_DOCKER_HOST",
        )
    })
}

/// By the parts that it says it has: both speak the same language at any path.
fn is_podman(version: &SystemVersion) -> bool {
    let parts = version.components.iter().flatten();
    parts.map(|part| part.name.as_str()).any(|name| name == "Podman Engine")
}

impl Facts {
    fn new(address: String, near: bool, podman: bool, info: SystemInfo) -> Self {
        let security = info.security_options.unwrap_or_default();
        let has = |word: &str| {
            let name = format!("name={word}");
            security.iter().any(|option| option.split(',').any(|part| part == name || part == word))
        };
        let mut runtimes: Vec<String> = info.runtimes.unwrap_or_default().into_keys().collect();
        runtimes.sort();
        let mut usual_runtime = info.default_runtime.filter(|name| !name.is_empty());
        if podman {
            // It lists those that it has heard of, and passes over which of them a container is to have.
            let name = usual_runtime.as_deref().and_then(|path| path.rsplit('/').next());
            usual_runtime = name.map(str::to_owned);
            runtimes = usual_runtime.iter().cloned().collect();
        }
        Self {
            address,
            version: info.server_version.unwrap_or_default(),
            near,
            podman,
            app_armor: has("apparmor"),
            own_ids: has("userns") || has("rootless"),
            memory: info.memory_limit.unwrap_or(true),
            swap: info.swap_limit.unwrap_or(true),
            cpu: info.cpu_cfs_quota.unwrap_or(true),
            pids: info.pids_limit.unwrap_or(true),
            runtimes,
            usual_runtime,
        }
    }

    /// Whether a process of ours can speak to its agents without the engine: with ids of their own, containers would not
    /// know whom they speak to.
    pub(crate) fn is_reachable(&self) -> bool {
        self.near && !self.own_ids
    }

    /// The engine's runtime that is meant by a name: that of the name, or one of its kind.
    pub(crate) fn runtime(&self, name: &str) -> Option<&str> {
        let exact = self.runtimes.iter().find(|runtime| *runtime == name);
        let of_its_kind = || {
            let kinds = ["kata", "runsc"];
            let kind = kinds.contains(&name);
            self.runtimes.iter().find(|runtime| kind && runtime.contains(name))
        };
        exact.or_else(of_its_kind).map(String::as_str)
    }
}

/// Where the engine is looked for, before it is asked anything.
pub(crate) fn socket(options: &Options) -> Option<PathBuf> {
    match options.host.as_deref() {
        Some(host) => host.strip_prefix("unix://").map(PathBuf::from),
        None => USUAL_SOCKETS.map(PathBuf::from).into_iter().find(|path| path.exists()),
    }
}

/// How strong a runtime's wall is, by its name. What is not known is taken for the weakest.
pub(crate) fn class(runtime: Option<&str>) -> IsolationClass {
    match runtime {
        Some(name) if name.contains("kata") => IsolationClass::Vm,
        Some(name) if name.contains("runsc") => IsolationClass::Kernel,
        _ => IsolationClass::Namespace,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bollard::models::{Runtime, SystemVersionComponents};

    #[test]
    fn what_an_engine_says_about_itself() {
        let info = SystemInfo {
            security_options: Some(vec![
                "name=seccomp,profile=default".into(),
                "name=userns".into(),
            ]),
            swap_limit: Some(false),
            ..SystemInfo::default()
        };
        let facts = Facts::new(String::new(), true, false, info);
        assert!(facts.own_ids && !facts.app_armor && !facts.swap && facts.memory);
    }

    #[test]
    fn podman_says_what_it_is_and_has_one_runtime() {
        let part = |name: &str| SystemVersionComponents {
            name: name.to_owned(),
            ..SystemVersionComponents::default()
        };
        let version = |parts: &[&str]| SystemVersion {
            components: Some(parts.iter().map(|name| part(name)).collect()),
            ..SystemVersion::default()
        };
        assert!(is_podman(&version(&["Podman Engine", "Conmon", "OCI Runtime (runc)"])));
        assert!(!is_podman(&version(&["Engine", "containerd", "runc"])));
        assert!(!is_podman(&SystemVersion::default()));
        let listed = ["crun", "kata", "runc", "runsc"];
        let info = SystemInfo {
            runtimes: Some(listed.map(|name| (name.to_owned(), Runtime::default())).into()),
            default_runtime: Some("runc".to_owned()),
            ..SystemInfo::default()
        };
        let facts = |podman| Facts::new(String::new(), true, podman, info.clone());
        assert_eq!((facts(true).runtimes.len(), facts(true).runtime("runsc")), (1, None));
        let path = SystemInfo { default_runtime: Some("/bin/crun".to_owned()), ..info.clone() };
        assert_eq!(Facts::new(String::new(), true, true, path).runtime("crun"), Some("crun"));
        assert_eq!(
            (facts(false).runtimes.len(), facts(false).runtime("runsc")),
            (4, Some("runsc"))
        );
    }

    #[test]
    fn runtimes_by_name() {
        for (name, expected) in [
            (None, IsolationClass::Namespace),
            (Some("runc"), IsolationClass::Namespace),
            (Some("runsc-kvm"), IsolationClass::Kernel),
            (Some("io.containerd.kata.v2"), IsolationClass::Vm),
        ] {
            assert_eq!(class(name), expected);
        }
    }
}
