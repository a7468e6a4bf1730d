//! The conformance suite on the docker backend, with an engine that the test starts and ends.
//!
//! All cases are one test: an engine takes longer to start than any of them takes to run. This program is its own launcher
//! (`launcher <fd>`, as the real binary has it).

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test tells its runner what happened"
)]

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use belljar_backend::Backend;
use belljar_backend::conformance::{Bench, CASES};
use belljar_docker::{Docker, Options};
use belljar_machinery::Machine;
use belljar_testkit::{Dockerd, skip};
use libtest_mimic::{Arguments, Failed, Trial};

/// Cases whose subject this backend refuses, and the word that the refusal has.
const REFUSED: &[(&str, &str)] =
    &[("the_workspace_layer_keeps_changes_and_can_be_reset", "workspace-mode overlay")];

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("launcher") {
        let socket = arguments.next().and_then(|number| number.parse().ok()).unwrap_or(-1);
        return belljar_launcher::main(socket);
    }
    let trials = vec![
        Trial::test("docker::conformance", docker),
        Trial::test("podman::conformance", podman),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn docker() -> Result<(), Failed> {
    if let Some(reason) = Dockerd::unavailable() {
        skip("docker::conformance", &reason);
        return Ok(());
    }
    with(Dockerd::start()?)
}

/// The same on Podman's compatible socket.
fn podman() -> Result<(), Failed> {
    if let Some(reason) = Dockerd::podman_unavailable() {
        skip("podman::conformance", &reason);
        return Ok(());
    }
    with(Dockerd::start_podman()?)
}

fn with(daemon: Dockerd) -> Result<(), Failed> {
    let directory =
        tempfile::Builder::new().prefix("bj").tempdir().map_err(|error| error.to_string())?;
    run(conformance(&daemon.host(), directory.path()))
}

fn run(body: impl Future<Output = Result<(), String>>) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(body).map_err(Failed::from)
}

/// A backend with a state directory of its own.
fn backend(host: &str, state_dir: &Path) -> Result<(Docker, Arc<Machine>), String> {
    std::fs::create_dir_all(state_dir).map_err(|error| error.to_string())?;
    let launcher = std::env::current_exe().map_err(|error| error.to_string())?;
    let machine = belljar_machinery::Options { state_dir: state_dir.to_owned(), launcher };
    let machine = Arc::new(Machine::new(machine));
    let options = Options { host: Some(host.to_owned()), ..Options::default() };
    Ok((Docker::new(options, Arc::clone(&machine)), machine))
}

async fn conformance(host: &str, directory: &Path) -> Result<(), String> {
    let (backend, machine) = backend(host, &directory.join("state"))?;
    let mut wrong = Vec::new();
    for case in CASES {
        let scratch = directory.join(case.name);
        std::fs::create_dir(&scratch).map_err(|error| error.to_string())?;
        open_to_all(&scratch)?;
        let started = Instant::now();
        let outcome = case.run(&Bench { backend: &backend, scratch, own_kernel: false }).await;
        let expected = REFUSED.iter().find(|(name, _)| *name == case.name);
        let verdict = match (&outcome, expected) {
            (Ok(()), None) => "ok".to_owned(),
            (Err(refusal), Some((_, word))) if refusal.contains(word) => "refused".to_owned(),
            (outcome, _) => {
                wrong.push(format!("{}: {outcome:?}", case.name));
                format!("FAILED {outcome:?}")
            }
        };
        println!("{} {verdict} ({} ms)", case.name, started.elapsed().as_millis());
    }
    let left = backend.orphans(&[]).await.map_err(|error| error.to_string())?;
    machine.close().await;
    if !left.is_empty() {
        wrong.push(format!("left behind: {left:?}"));
    }
    if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
}

/// Whoever the workload is on the host may write there.
fn open_to_all(path: &Path) -> Result<(), String> {
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(path, mode).map_err(|error| error.to_string())
}
