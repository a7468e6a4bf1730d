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
            (false, _) => refused.push((format!("`{name}`"), probe)),
        }
    }
    slow.or_else(|| none_of(refused)).unwrap_or_else(|| {
        let names: Vec<_> = runtime::names(options).collect();
        failed(None, &missing(&names.join("`, `")))
    })
}

/// What is said where several were tried and none worked. A reason that they share is said once, with its remedy.
fn none_of(refused: Vec<(String, Probe)>) -> Option<Probe> {
    let (_, first) = refused.first()?;
    let shared = refused.iter().all(|(_, probe)| probe.reason == first.reason);
    let reasons = refused.iter().map(|(name, probe)| format!("{name}: {}", probe.reason));
    let reason = if shared { first.reason.clone() } else { reasons.collect::<Vec<_>>().join("; ") };
    let remedy = if shared { first.remedy.clone() } else { None };
    let (_, last) = refused.into_iter().next_back()?;
    Some(Probe { reason, remedy, platform: None, ..last })
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
    if runtime::find(options, known).is_none() {
        return failed(Some(name), &missing(name));
    }
    let mut refused = Vec::new();
    for platform in trial_platforms() {
        // A device that is there proves nothing; one that is not spares the trial.
        if platform == Platform::Kvm && !Path::new("/dev/kvm").exists() {
            continue;
        }
        let probe = one(machine, options, name, Some(platform)).await;
        if probe.works {
            return probe;
        }
        refused.push((platform.as_str().to_owned(), probe));
    }
    none_of(refused).unwrap_or_else(|| failed(Some(name), &missing(name)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unavailable;

    #[test]
    fn a_shared_reason_is_said_once_and_with_its_remedy() {
        let refused = |reason: &str| {
            let error = unavailable(reason.to_owned(), Some(format!("{reason}: remedy")));
            ("x".to_owned(), failed(Some("runsc"), &error))
        };
        let same = none_of(vec![refused("root"), refused("root")]).expect("two were tried");
        assert_eq!((same.reason.as_str(), same.remedy.as_deref()), ("root", Some("root: remedy")));
        let other = none_of(vec![refused("root"), refused("old")]).expect("two were tried");
        assert_eq!((other.reason.as_str(), other.remedy), ("x: root; x: old", None));
        assert!(none_of(Vec::new()).is_none());
    }
}
