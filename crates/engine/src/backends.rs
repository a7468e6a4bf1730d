//! Which wall a sandbox gets.
//!
//! `auto` takes the first backend that works and isolates; `local` only by name and with the caller's word. Trying a
//! backend runs a sandbox, so it is done once, and not at all where there is nothing to choose between: starting the
//! sandbox itself is then the trial.

use std::sync::Arc;

use belljar_backend::{Backend, IsolationClass, Probe};
use belljar_codes::Code;
use tokio::sync::OnceCell;

use crate::{BackendChoice, CreateRequest, Error, Result};

pub(crate) struct Backends {
    list: Vec<Entry>,
}

struct Entry {
    backend: Arc<dyn Backend>,
    probe: OnceCell<Probe>,
}

/// A backend and why it is this one.
pub(crate) struct Chosen {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) class: IsolationClass,
    pub(crate) reason: String,
}

impl Backends {
    pub(crate) fn new(backends: Vec<Arc<dyn Backend>>) -> Self {
        let entry = |backend| Entry { backend, probe: OnceCell::new() };
        Self { list: backends.into_iter().map(entry).collect() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<dyn Backend>> {
        self.list.iter().map(|entry| &entry.backend)
    }

    /// The backend that a record names.
    pub(crate) fn get(&self, name: &str) -> Result<Arc<dyn Backend>> {
        Ok(Arc::clone(&self.entry(name)?.backend))
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

    /// Tries every backend anew.
    pub(crate) async fn probe(&self) -> Vec<Probe> {
        let mut probes = Vec::new();
        for entry in &self.list {
            probes.push(entry.backend.probe().await);
        }
        probes
    }

    pub(crate) async fn choose(&self, request: &CreateRequest) -> Result<Chosen> {
        match &request.backend {
            BackendChoice::Named(name) => self.choose_named(name, request).await,
            BackendChoice::Auto => self.choose_automatically(request.isolation_floor).await,
        }
    }

    async fn choose_named(&self, name: &str, request: &CreateRequest) -> Result<Chosen> {
        let entry = self.entry(name)?;
        if entry.isolates_nothing() && !request.waive_isolation {
            return Err(Error::new(
                Code::IsolationNotWaived,
                format!("backend `{name}` runs commands on the host without any isolation"),
            )
            .with_remedy(format!(
                "leave out `--backend {name}`, or add `--i-understand-no-isolation`"
            )));
        }
        let class = entry.class().await;
        if let Some(floor) = request.isolation_floor
            && !satisfies(class, floor)
        {
            return Err(Error::new(
                Code::NotEnforceable,
                format!(
                    "backend `{name}` has isolation class `{}`, below the floor `{}`",
                    class.as_str(),
                    floor.as_str()
                ),
            )
            .with_remedy("choose a stronger backend, or lower the floor"));
        }
        Ok(Chosen {
            backend: Arc::clone(&entry.backend),
            class,
            reason: "asked for by name".to_owned(),
        })
    }

    async fn choose_automatically(&self, floor: Option<IsolationClass>) -> Result<Chosen> {
        let mut candidates = Vec::new();
        let mut refused = Vec::new();
        for entry in self.list.iter().filter(|entry| !entry.isolates_nothing()) {
            let class = entry.class().await;
            if floor.is_none_or(|floor| satisfies(class, floor)) {
                candidates.push((entry, class));
            } else {
                refused.push(format!("`{}` is only `{}`", entry.backend.name(), class.as_str()));
            }
        }
        let chosen = |entry: &Entry, class, reason: &str| Chosen {
            backend: Arc::clone(&entry.backend),
            class,
            reason: reason.to_owned(),
        };
        if let [(entry, class)] = candidates[..] {
            return Ok(chosen(entry, class, "the only backend that satisfies the request"));
        }
        for (entry, class) in candidates {
            let probe = entry.probe().await;
            if probe.works {
                return Ok(chosen(entry, class, "the first backend that works on this host"));
            }
            refused.push(format!("`{}`: {}", entry.backend.name(), probe.reason));
        }
        let message = match refused.as_slice() {
            [] => "there is no backend that isolates".to_owned(),
            refused => format!("no backend satisfies the request ({})", refused.join("; ")),
        };
        Err(Error::new(Code::NoBackend, message)
            .with_remedy("`belljar doctor` tells what this host lacks"))
    }

    fn entry(&self, name: &str) -> Result<&Entry> {
        self.list.iter().find(|entry| entry.backend.name() == name).ok_or_else(|| {
            let names: Vec<_> = self.iter().map(|backend| backend.name()).collect();
            Error::new(Code::BackendUnavailable, format!("there is no backend `{name}`"))
                .with_remedy(format!("use `auto` or one of: {}", names.join(", ")))
        })
    }
}

impl Entry {
    async fn probe(&self) -> &Probe {
        self.probe.get_or_init(|| self.backend.probe()).await
    }

    async fn class(&self) -> IsolationClass {
        match self.backend.class() {
            Some(class) => class,
            None => self.probe().await.class,
        }
    }

    fn isolates_nothing(&self) -> bool {
        self.backend.class() == Some(IsolationClass::None)
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
