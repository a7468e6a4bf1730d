//! Which wall a sandbox gets.
//!
//! `auto` takes the strongest backend that works fast; `local` only by name and with the caller's word. Trying a backend
//! runs a sandbox, so what was found is remembered as long as the host stays the same ([`memory`]), and nothing is tried
//! that could not be chosen: where only one backend comes into question, starting the sandbox itself is the trial.

mod memory;

use std::path::PathBuf;
use std::sync::Arc;

use belljar_backend::{Backend, IsolationClass, Offer, Probe, RuntimeChoice};
use belljar_codes::Code;

use crate::{BackendChoice, CreateRequest, Error, Result};
use memory::Memory;

pub(crate) struct Backends {
    list: Vec<Arc<dyn Backend>>,
    memory: Memory,
}

/// A backend and why it is this one.
pub(crate) struct Chosen {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) runtime: Option<RuntimeChoice>,
    pub(crate) class: IsolationClass,
    pub(crate) reason: String,
}

/// A backend that could be chosen, with what it could be at best.
struct Candidate<'a> {
    index: usize,
    backend: &'a Arc<dyn Backend>,
    offer: Offer,
}

impl Backends {
    /// What probes find is kept in the file.
    pub(crate) fn new(backends: Vec<Arc<dyn Backend>>, file: PathBuf) -> Self {
        Self { list: backends, memory: Memory::new(file) }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.list.iter()
    }

    /// The backend that a record names.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<dyn Backend>> {
        self.named(name).cloned()
    }

    /// Has every backend clear up after host processes of its own that were killed.
    pub(crate) async fn recover(&self) {
        for backend in self.iter() {
            if let Err(error) = backend.recover().await {
                // The engine must open all the same: destroying and looking for leaks need it.
                tracing::warn!(%error, backend = backend.name(), "clearing up failed");
            }
        }
    }

    /// Every backend, and every runtime of those that have several, as it was found to be; tried anew if asked to.
    pub(crate) async fn probe(&self, only: Option<&str>, refresh: bool) -> Vec<Probe> {
        let mut probes = Vec::new();
        for backend in self.iter().filter(|backend| only.is_none_or(|only| only == backend.name()))
        {
            let runtimes = backend.offer().runtimes;
            if runtimes.is_empty() {
                probes.push(self.memory.probe(backend, None, refresh).await);
            }
            for runtime in runtimes {
                let probe = self.memory.probe(backend, Some(&runtime), refresh).await;
                // What names no runtime is said of the backend as a whole, and that once.
                let is_said = probe.runtime.is_none() && probes.last().is_some_and(said(&probe));
                if !is_said {
                    probes.push(probe);
                }
            }
        }
        probes
    }

    pub(crate) async fn choose(&self, request: &CreateRequest) -> Result<Chosen> {
        match &request.backend {
            BackendChoice::Named(name) => self.choose_named(name, request).await,
            BackendChoice::Auto => self.choose_automatically(request).await,
        }
    }

    async fn choose_named(&self, name: &str, request: &CreateRequest) -> Result<Chosen> {
        let backend = self.named(name)?;
        if isolates_nothing(backend) && !request.waive_isolation {
            return Err(Error::new(
                Code::IsolationNotWaived,
                format!("backend `{name}` runs commands on the host without any isolation"),
            )
            .with_remedy(format!(
                "leave out `--backend {name}`, or add `--i-understand-no-isolation`"
            )));
        }
        let offered = backend.offer().runtimes;
        let runtime = request.runtime.as_deref();
        if let Some(runtime) = runtime.filter(|&runtime| !offered.iter().any(|one| one == runtime))
        {
            return Err(unknown_runtime(name, runtime, &offered));
        }
        let chosen = match backend.class() {
            Some(class) => Chosen {
                backend: Arc::clone(backend),
                runtime: None,
                class,
                reason: "asked for by name".to_owned(),
            },
            None => {
                let mut probe = self.working(backend, runtime).await?;
                let mut what = "the strongest that works fast in it";
                if let (None, Some(floor)) = (runtime, request.isolation_floor)
                    && !satisfies(probe.class, floor)
                    && let Some(stronger) = self.satisfying(backend, floor).await
                {
                    probe = stronger;
                    what = "what satisfies the floor in it";
                }
                let reason = match (runtime, &probe.runtime) {
                    (None, Some(found)) => {
                        let why = match probe.reason.as_str() {
                            "" => String::new(),
                            why => format!(" ({why})"),
                        };
                        let found = described(found, &probe);
                        format!("asked for by name; {found} is {what}{why}")
                    }
                    _ => "asked for by name".to_owned(),
                };
                found(backend, probe, reason)
            }
        };
        if let Some(floor) = request.isolation_floor
            && !satisfies(chosen.class, floor)
        {
            return Err(Error::new(
                Code::NotEnforceable,
                format!(
                    "backend `{name}` has isolation class `{}`, below the floor `{}`",
                    chosen.class.as_str(),
                    floor.as_str()
                ),
            )
            .with_remedy("choose a stronger backend, or lower the floor"));
        }
        Ok(chosen)
    }

    /// A runtime of the backend that is as strong as wanted and works, fast or not.
    async fn satisfying(&self, backend: &Arc<dyn Backend>, floor: IsolationClass) -> Option<Probe> {
        for runtime in backend.offer().runtimes {
            let probe = self.memory.probe(backend, Some(&runtime), false).await;
            if probe.works && satisfies(probe.class, floor) {
                return Some(probe);
            }
        }
        None
    }

    /// A probe that says that it works.
    async fn working(&self, backend: &Arc<dyn Backend>, runtime: Option<&str>) -> Result<Probe> {
        let mut probe = self.memory.probe(backend, runtime, false).await;
        if !probe.works {
            // What is wrong may have been put right since.
            probe = self.memory.probe(backend, runtime, true).await;
        }
        if probe.works {
            return Ok(probe);
        }
        let name = backend.name();
        let error = Error::new(
            Code::BackendUnavailable,
            format!("backend `{name}` does not work on this host: {}", probe.reason),
        );
        let remedy = probe.remedy.unwrap_or_else(|| "`belljar probe` tells what works".to_owned());
        Err(error.with_remedy(remedy))
    }

    async fn choose_automatically(&self, request: &CreateRequest) -> Result<Chosen> {
        let floor = request.isolation_floor;
        let runtime = request.runtime.as_deref();
        let mut candidates = Vec::new();
        let mut refused = Vec::new();
        for (index, backend) in self.list.iter().enumerate() {
            if isolates_nothing(backend) {
                continue;
            }
            let (name, offer) = (backend.name(), backend.offer());
            if runtime.is_some_and(|wanted| !offer.runtimes.iter().any(|one| one == wanted)) {
                refused.push(format!("`{name}` has no such runtime"));
            } else if offer.strongest == IsolationClass::None && runtime.is_none() {
                refused.push(format!("`{name}`: nothing that it needs is installed"));
            } else if runtime.is_none()
                && floor.is_some_and(|floor| !satisfies(offer.strongest, floor))
            {
                refused.push(format!("`{name}` is only `{}`", offer.strongest.as_str()));
            } else {
                candidates.push(Candidate { index, backend, offer });
            }
        }
        // The strongest first; the list's order is the order of preference among equals.
        candidates.sort_by_key(|one| std::cmp::Reverse(rank(one.offer.strongest)));
        let untested = candidates.iter().filter(|one| one.backend.class().is_some()).count() == 1;
        let mut best: Option<(usize, Chosen)> = None;
        let mut slow: Option<Chosen> = None;
        for candidate in candidates {
            let bound = rank(candidate.offer.strongest);
            if let Some((index, chosen)) = &best
                && (rank(chosen.class), candidate.index) > (bound, *index)
            {
                break; // nothing that follows can be better
            }
            if let (Some(class), true) = (candidate.backend.class(), untested) {
                best = better(best, candidate.index, plain(candidate.backend, class));
                continue;
            }
            let probe = self.memory.probe(candidate.backend, runtime, false).await;
            let name = candidate.backend.name();
            let fits = floor.is_none_or(|floor| satisfies(probe.class, floor));
            match (probe.works && fits, probe.fast || runtime.is_some()) {
                (true, true) => {
                    let reason = reason(&probe);
                    best = better(best, candidate.index, found(candidate.backend, probe, reason));
                }
                (true, false) => {
                    refused.push(format!("`{name}` works, but slowly"));
                    let reason = "the only one that satisfies the request, though slow".to_owned();
                    slow = slow.or(Some(found(candidate.backend, probe, reason)));
                }
                (false, _) if probe.works => {
                    refused.push(format!("`{name}` is only `{}`", probe.class.as_str()));
                }
                (false, _) => refused.push(format!("`{name}`: {}", probe.reason)),
            }
        }
        if let Some(mut chosen) = best.map(|(_, chosen)| chosen).or(slow) {
            if !refused.is_empty() {
                chosen.reason = format!("{} ({})", chosen.reason, refused.join("; "));
            }
            return Ok(chosen);
        }
        let message = match refused.as_slice() {
            [] => "there is no backend that isolates".to_owned(),
            refused => format!("no backend satisfies the request ({})", refused.join("; ")),
        };
        Err(Error::new(Code::NoBackend, message)
            .with_remedy("`belljar probe` and `belljar doctor` tell what this host lacks"))
    }

    fn named(&self, name: &str) -> Result<&Arc<dyn Backend>> {
        self.list.iter().find(|backend| backend.name() == name).ok_or_else(|| {
            let names: Vec<_> = self.iter().map(|backend| backend.name()).collect();
            Error::new(Code::BackendUnavailable, format!("there is no backend `{name}`"))
                .with_remedy(format!("use `auto` or one of: {}", names.join(", ")))
        })
    }
}

/// Whether another probe says the same.
fn said(probe: &Probe) -> impl Fn(&Probe) -> bool {
    |other| (&other.backend, &other.reason) == (&probe.backend, &probe.reason)
}

fn isolates_nothing(backend: &Arc<dyn Backend>) -> bool {
    backend.class() == Some(IsolationClass::None)
}

fn unknown_runtime(backend: &str, runtime: &str, offered: &[String]) -> Error {
    let message = format!("backend `{backend}` has no runtime `{}`", runtime.escape_default());
    let remedy = match offered {
        [] => "leave out `--runtime`, or use `--backend oci`".to_owned(),
        offered => format!("use one of: {}", offered.join(", ")),
    };
    Error::new(Code::BackendUnavailable, message).with_remedy(remedy)
}

fn found(backend: &Arc<dyn Backend>, probe: Probe, reason: String) -> Chosen {
    Chosen {
        backend: Arc::clone(backend),
        class: probe.class,
        runtime: probe.runtime.map(|name| RuntimeChoice { name, platform: probe.platform }),
        reason,
    }
}

/// One that is taken without a trial, as no other could take its place.
fn plain(backend: &Arc<dyn Backend>, class: IsolationClass) -> Chosen {
    let reason = "no stronger backend works fast here".to_owned();
    Chosen { backend: Arc::clone(backend), runtime: None, class, reason }
}

fn reason(probe: &Probe) -> String {
    match &probe.runtime {
        Some(runtime) => {
            format!("{} is the strongest that works fast here", described(runtime, probe))
        }
        None => "the strongest backend that works fast here".to_owned(),
    }
}

fn described(runtime: &str, probe: &Probe) -> String {
    match &probe.platform {
        Some(platform) => format!("`{runtime}` on {platform}"),
        None => format!("`{runtime}`"),
    }
}

/// The stronger of two, and of equals the one that is preferred.
fn better(best: Option<(usize, Chosen)>, index: usize, chosen: Chosen) -> Option<(usize, Chosen)> {
    match best {
        Some((other, known))
            if (rank(known.class), std::cmp::Reverse(other))
                >= (rank(chosen.class), std::cmp::Reverse(index)) =>
        {
            Some((other, known))
        }
        _ => Some((index, chosen)),
    }
}

/// `wasm` stands beside the others and is chosen unasked only where nothing else is there.
fn rank(class: IsolationClass) -> u8 {
    match class {
        IsolationClass::None => 0,
        IsolationClass::Wasm => 1,
        IsolationClass::Namespace => 2,
        IsolationClass::Kernel => 3,
        IsolationClass::Vm => 4,
    }
}

/// `wasm` stands beside the other classes: only itself satisfies it, and it satisfies nothing else.
fn satisfies(class: IsolationClass, floor: IsolationClass) -> bool {
    use IsolationClass::{None, Wasm};
    match (class, floor) {
        (Wasm, Wasm) | (_, None) => true,
        (Wasm, _) | (_, Wasm) => false,
        (class, floor) => class >= floor,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floors() {
        use IsolationClass::{Kernel, Namespace, None, Vm, Wasm};
        for (class, floor, expected) in [
            (Vm, Kernel, true),
            (Namespace, Namespace, true),
            (Namespace, Kernel, false),
            (None, Namespace, false),
            (None, None, true),
            (Wasm, None, true),
            (Wasm, Wasm, true),
            (Wasm, Namespace, false),
            (Vm, Wasm, false),
        ] {
            assert_eq!(satisfies(class, floor), expected, "{class:?} {floor:?}");
        }
    }
}
