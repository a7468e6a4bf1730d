//! The conformance suite on every OCI runtime that is installed.
//!
//! This program is its own launcher (`launcher <fd>`, as the real binary has it). A runtime that is not installed, or that
//! does not work on this host, shows as skipped with the reason that its probe gives. `BELLJAR_TEST_RUNTIMES` names
//! directories that are searched first.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test tells its runner what happened"
)]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use belljar_backend::conformance::{Bench, CASES, Outcome};
use belljar_backend::{Backend, IsolationClass};
use belljar_machinery::Machine;
use belljar_oci::{NAMES, Oci, Options};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("launcher") {
        let socket = arguments.next().and_then(|number| number.parse().ok()).unwrap_or(-1);
        return belljar_launcher::main(socket);
    }
    let mut trials = Vec::new();
    for name in NAMES {
        // Whether it works is asked when a test runs: listing them must not wait for runtimes.
        trials.push(Trial::test(format!("{name}::works"), move || match refusal(name) {
            None => the_probe_tells(name),
            Some(reason) => {
                println!("SKIPPED oci/{name}: {reason}");
                Ok(())
            }
        }));
        for case in CASES {
            trials.push(Trial::test(format!("{name}::{}", case.name), move || {
                match refusal(name) {
                    None => run(name, case.name),
                    Some(_) => Ok(()), // said once, above
                }
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// Why a runtime cannot be tested here; found once.
fn refusal(name: &'static str) -> Option<String> {
    static FOUND: Mutex<BTreeMap<&str, Option<String>>> = Mutex::new(BTreeMap::new());
    let mut found = FOUND.lock().unwrap_or_else(PoisonError::into_inner);
    found.entry(name).or_insert_with(|| try_runtime(name)).clone()
}

fn try_runtime(name: &'static str) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("OCI runtimes need root".to_owned());
    }
    let mut reason = None;
    let probed = with_backend(name, async |backend, _| {
        let probe = backend.probe(Some(name)).await;
        reason = (!probe.works).then_some(probe.reason);
        Ok(())
    });
    reason.or_else(|| probed.err().map(|failed| failed.message().unwrap_or("failed").to_owned()))
}

/// The class follows from what runs; nothing is fast that is not.
fn the_probe_tells(name: &'static str) -> Result<(), Failed> {
    with_backend(name, async |backend, _| {
        let probe = backend.probe(None).await;
        let class = match name {
            "runsc" => IsolationClass::Kernel,
            _ => IsolationClass::Namespace,
        };
        let told = probe.works && probe.class == class && probe.runtime.as_deref() == Some(name);
        let platform = probe.platform.is_some() == (name == "runsc");
        let slow = probe.platform.as_deref() == Some("ptrace");
        if told && platform && probe.fast != slow && !probe.enforcement.is_empty() {
            Ok(())
        } else {
            Err(format!("{probe:?}"))
        }
    })
}

fn run(runtime: &'static str, name: &str) -> Result<(), Failed> {
    let case = CASES.iter().find(|case| case.name == name).ok_or("no such case")?;
    with_backend(runtime, async |backend, state| {
        let scratch = state.with_file_name("scratch");
        std::fs::create_dir(&scratch).map_err(|error| error.to_string())?;
        case.run(&Bench { backend, scratch, own_kernel: runtime == "runsc" }).await
    })
}

/// Does something with a backend on a fresh state directory, and looks for what is left.
fn with_backend(
    runtime: &'static str,
    act: impl AsyncFnOnce(&Oci, &Path) -> Outcome,
) -> Result<(), Failed> {
    let directory =
        tempfile::Builder::new().prefix("bj").tempdir().map_err(|error| error.to_string())?;
    let tokio = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    tokio.block_on(async {
        let launcher = std::env::current_exe().map_err(|error| error.to_string())?;
        let state_dir = directory.path().join("state");
        std::fs::create_dir(&state_dir).map_err(|error| error.to_string())?;
        let options = belljar_machinery::Options { state_dir: state_dir.clone(), launcher };
        let backend = Oci::new(
            Arc::new(Machine::new(options)),
            Options { directories: directories(), only: Some(runtime.to_owned()) },
        );
        let outcome = act(&backend, &state_dir).await;
        let left = backend.orphans(&[]).await.map_err(|error| error.to_string())?;
        backend.close().await;
        outcome?;
        if left.is_empty() { Ok(()) } else { Err(Failed::from(format!("left behind: {left:?}"))) }
    })
}

fn directories() -> Vec<PathBuf> {
    ["BELLJAR_TEST_RUNTIMES", "PATH"]
        .into_iter()
        .filter_map(std::env::var_os)
        .flat_map(|paths| std::env::split_paths(&paths).collect::<Vec<_>>())
        .collect()
}
