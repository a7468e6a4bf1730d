//! What probes found, remembered as long as the host stays the same.
//!
//! In a file of the state directory, because a command may be the only one that its engine ever serves. An entry counts
//! only with the fingerprint of the host and of the backend under which it was made. Losing the file costs a trial.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;

use belljar_backend::{Backend, Probe};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

pub(super) struct Memory {
    file: PathBuf,
    /// Read when it is first needed. Held during a trial, so that two who ask cost one.
    entries: Mutex<Option<Vec<Entry>>>,
}

#[derive(Clone, Serialize, Deserialize)]
struct Entry {
    fingerprint: String,
    /// What was asked for; the probe says what was found.
    runtime: Option<String>,
    probe: Probe,
}

impl Memory {
    pub(super) fn new(file: PathBuf) -> Self {
        Self { file, entries: Mutex::default() }
    }

    /// What is known of a backend, or what a trial says now.
    pub(super) async fn probe(
        &self,
        backend: &Arc<dyn Backend>,
        runtime: Option<&str>,
        refresh: bool,
    ) -> Probe {
        let fingerprint = format!("{}\n{}", host(), backend.offer().fingerprint);
        let mut entries = self.entries.lock().await;
        let known = entries.get_or_insert_with(|| self.read());
        let meant = |entry: &Entry| {
            entry.probe.backend == backend.name() && entry.runtime.as_deref() == runtime
        };
        let same = |entry: &&Entry| meant(entry) && entry.fingerprint == fingerprint;
        if let Some(entry) = known.iter().find(same).filter(|_| !refresh) {
            return entry.probe.clone();
        }
        let probe = backend.probe(runtime).await;
        known.retain(|entry| !meant(entry));
        known.push(Entry {
            fingerprint,
            runtime: runtime.map(str::to_owned),
            probe: probe.clone(),
        });
        self.write(known);
        probe
    }

    fn read(&self) -> Vec<Entry> {
        let text = fs::read(&self.file).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Put together aside, so that nobody reads half of it.
    fn write(&self, entries: &[Entry]) {
        let aside = self.file.with_extension(format!("{}.new", std::process::id()));
        let written = serde_json::to_vec(entries)
            .map_err(std::io::Error::from)
            .and_then(|text| fs::write(&aside, text))
            .and_then(|()| fs::rename(&aside, &self.file));
        if let Err(error) = written {
            tracing::debug!(%error, "what probes found is not kept");
        }
    }
}

/// What a probe of any backend depends on: this kernel, who asks, and this version of ours.
fn host() -> String {
    let kernel = fs::read_to_string("/proc/version").unwrap_or_default();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let identity =
        status.lines().filter(|line| line.starts_with("Uid:") || line.starts_with("CapEff:"));
    let identity: Vec<_> = identity.collect();
    format!("{} {} {}", env!("CARGO_PKG_VERSION"), kernel.trim(), identity.join(" "))
}
