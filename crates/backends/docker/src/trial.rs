//! Which runtime the engine uses, and whether it works: found by running a tiny sandbox.

use std::time::{Duration, Instant};

use belljar_backend::{
    Backend, Enforcement, Error, IsolationClass, Offer, Probe, Result, RootSource, RuntimeChoice,
    SandboxSpec,
};
use belljar_codes::Code;
use belljar_machinery::probe;
use belljar_policy::NetworkMode;
use tokio::time::timeout;

use crate::backend::{Docker, NAME};
use crate::daemon::{self, class};
use crate::failure::refused;
use crate::root::unreadable;

/// Runtimes that engines may have, the strongest first.
const RUNTIMES: [&str; 4] = ["kata", "runsc", "runc", "crun"];
/// A tiny sandbox that takes longer is not chosen unasked.
const FAST_MILLISECONDS: f64 = 3_000.0;
/// How long a probe may take before the answer is "does not work".
const PROBE_LIMIT: Duration = Duration::from_secs(30);

impl Docker {
    pub(crate) fn offered(&self) -> Offer {
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

    /// The strongest that the engine has and that works fast, or the one that is asked for.
    pub(crate) async fn probed(&self, runtime: Option<&str>) -> Probe {
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
        let mut tried = Vec::new();
        for runtime in stronger.chain([usual]) {
            let probe = self.probe_runtime(runtime).await;
            let is_enough = probe.works && probe.fast;
            tried.push(probe);
            if is_enough {
                break;
            }
        }
        // The last if it is fast, else the strongest that works at all.
        let fast = tried.iter().position(|probe| probe.works && probe.fast);
        let chosen = fast.or_else(|| tried.iter().position(|probe| probe.works));
        let chosen = chosen.unwrap_or(tried.len().saturating_sub(1));
        let mut reasons: Vec<String> = tried.iter().take(chosen).map(passed_over).collect();
        let mut probe = tried.swap_remove(chosen);
        reasons.push(probe.reason);
        probe.reason = reasons.join("; ");
        probe
    }

    /// The engine's name for the runtime of a sandbox.
    pub(crate) async fn runtime(&self, spec: &SandboxSpec) -> Result<Option<String>> {
        let wanted = spec.runtime.as_ref().map(|choice| choice.name.as_str());
        let Some(wanted) = wanted.or(self.options.runtime.as_deref()) else { return Ok(None) };
        let facts = &self.daemon().await?.facts;
        let found = facts.runtime(wanted).map(str::to_owned).ok_or_else(|| no_runtime(wanted))?;
        let own_kernel = class(Some(&found)) != IsolationClass::Namespace;
        if own_kernel && !spec.masks.is_empty() {
            return Err(refused(
                "masks",
                &format!("what `{found}` shows of a mount cannot be looked at after the start"),
                "use `--runtime runc`, or `--backend oci`",
            ));
        }
        if own_kernel && spec.network != NetworkMode::None {
            return Err(refused(
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
        let mut starting = std::pin::pin!(self.start(spec));
        let running = match timeout(PROBE_LIMIT, &mut starting).await {
            Ok(running) => running,
            Err(_) => {
                // Nobody else knows of it, so it is waited for, though not for ever: the engine may hang.
                let _ = timeout(PROBE_LIMIT, starting).await;
                Err(probe::late(PROBE_LIMIT))
            }
        };
        let stopped = timeout(PROBE_LIMIT, self.stop(&id)).await;
        let enforcement = running?.enforcement;
        stopped.map_err(|_| probe::late(PROBE_LIMIT))??;
        Ok((started.elapsed().as_secs_f64() * 1000.0, enforcement))
    }

    /// Tries one runtime of the engine.
    async fn probe_runtime(&self, runtime: &str) -> Probe {
        let mut probe = empty_probe();
        let facts = match self.daemon().await {
            Ok(daemon) => &daemon.facts,
            Err(error) => return failed_probe(error),
        };
        let Some(found) = facts.runtime(runtime) else {
            probe = failed_probe(no_runtime(runtime));
            (probe.runtime, probe.class) = (Some(runtime.to_owned()), class(Some(runtime)));
            return probe;
        };
        probe.runtime = Some(found.to_owned());
        probe.class = class(Some(found));
        match self.try_probe(found).await {
            Ok((milliseconds, enforcement)) => {
                let place = if facts.near { "on this host" } else { "elsewhere" };
                probe.works = true;
                probe.fast = milliseconds < FAST_MILLISECONDS;
                let kind = if facts.podman { "Podman" } else { "engine" };
                probe.reason = format!("{kind} {} {place}, {}", facts.version, facts.address);
                probe.start_ms = Some(milliseconds);
                probe.enforcement = enforcement;
            }
            Err(error) => {
                let failed = failed_probe(error);
                (probe.reason, probe.remedy) = (failed.reason, failed.remedy);
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

/// Why a runtime is not the one.
fn passed_over(probe: &Probe) -> String {
    let why = if probe.works { "it is slow" } else { &probe.reason };
    format!("not `{}`: {why}", probe.runtime.as_deref().unwrap_or_default())
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
