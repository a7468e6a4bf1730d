//! Trying runtimes: a real tiny sandbox on each, within a limit of time.

use std::path::Path;

use belljar_backend::{Error, Probe, RuntimeChoice};
use belljar_machinery::{Machine, Platform, Wall, probe};

use crate::Options;
use crate::runtime::{self, Known, missing, no_kata, trial_platforms};

/// The best that works: the strongest of those that are fast, else the strongest.
pub(crate) async fn best(machine: &Machine, options: &Options) -> Probe {
    let mut slow = None;
    let mut refused = Vec::new();
    for name in runtime::names(options) {
        let Some(known) = Known::parse(name) else { continue };
        if runtime::find(options, known).is_none() {
            continue;
        }
        let probe = of(machine, options, name).await;
        match (probe.works, probe.fast) {
            (true, true) => return probe,
            (true, false) => slow = slow.or(Some(probe)),
            (false, _) => refused.push(format!("`{name}`: {}", probe.reason)),
        }
    }
    slow.unwrap_or_else(|| {
        let names: Vec<_> = runtime::names(options).collect();
        let mut probe = failed(None, &missing(&names.join("`, `")));
        if !refused.is_empty() {
            probe.reason = refused.join("; ");
        }
        probe
    })
}

/// One runtime; gVisor on the fastest platform that works.
pub(crate) async fn of(machine: &Machine, options: &Options, name: &str) -> Probe {
    let known = match Known::parse(name) {
        Some(Known::Kata) => return failed(Some(name), &no_kata()),
        Some(known) => known,
        None => return failed(Some(name), &missing(name)),
    };
    if known != Known::Runsc {
        return one(machine, options, name, None).await;
    }
    let mut refused = Vec::new();
    let mut last = failed(Some(name), &missing(name));
    for platform in trial_platforms() {
        // A device that is there proves nothing; one that is not spares the trial.
        if platform == Platform::Kvm && !Path::new("/dev/kvm").exists() {
            continue;
        }
        let probe = one(machine, options, name, Some(platform)).await;
        if probe.works {
            return probe;
        }
        refused.push(format!("{}: {}", platform.as_str(), probe.reason));
        let found = runtime::find(options, known).is_some();
        last = probe;
        if !found {
            return last;
        }
    }
    last.platform = None;
    last.reason = refused.join("; ");
    last
}

async fn one(
    machine: &Machine,
    options: &Options,
    name: &str,
    platform: Option<Platform>,
) -> Probe {
    let platform_name = platform.map(|platform| platform.as_str().to_owned());
    let choice = RuntimeChoice { name: name.to_owned(), platform: platform_name.clone() };
    let runtime = match runtime::open(options, &choice) {
        Ok(runtime) => runtime,
        Err(error) => return failed(Some(name), &error),
    };
    let path = runtime.path.display().to_string();
    let mut probe = probe::of(machine, &Wall::Runtime(runtime)).await;
    probe.runtime = Some(name.to_owned());
    probe.platform = platform_name;
    probe.fast = platform != Some(Platform::Ptrace);
    if probe.works {
        let what = match platform {
            Some(platform) => format!("{path}, platform {}", platform.as_str()),
            None => path,
        };
        probe::runs_on(&mut probe, &what);
    }
    probe
}

fn failed(name: Option<&str>, error: &Error) -> Probe {
    let class = name.and_then(Known::parse).map(Known::class).unwrap_or_default();
    Probe {
        backend: String::new(),
        runtime: name.map(str::to_owned),
        platform: None,
        fast: false,
        works: false,
        class,
        reason: error.to_string(),
        remedy: error.remedy.clone(),
        start_ms: None,
        enforcement: Vec::new(),
    }
}
