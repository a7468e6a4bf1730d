//! The conformance suite on the native backend, as whoever runs it and, when that is root, as an ordinary user too.
//!
//! This program is its own launcher (`launcher <fd>`, as the real binary has it) and, for the ordinary user, its own
//! child: the cases of the second half run in a copy of it that was started under that user's id.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a test tells its runner what happened"
)]

use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use belljar_backend::Backend;
use belljar_backend::conformance::{Bench, CASES, Outcome};
use belljar_native::{Native, Options};
use libtest_mimic::{Arguments, Failed, Trial};

/// Made by `./test`; without it the second half cannot run and says so.
const ORDINARY_USER: &str = "belljar-test";

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("launcher") => {
            let socket = arguments.next().and_then(|number| number.parse().ok()).unwrap_or(-1);
            return belljar_launcher::main(socket);
        }
        Some("case") => return run_in_this_process(&arguments.next().unwrap_or_default()),
        _ => {}
    }
    let root = rustix::process::geteuid().is_root();
    let me = if root { "root" } else { "rootless" };
    let mut trials: Vec<Trial> = CASES
        .iter()
        .map(|case| Trial::test(format!("{me}::{}", case.name), || run(case.name)))
        .collect();
    trials.push(Trial::test(format!("{me}::a_killed_launcher_is_replaced"), || {
        with_backend(async |backend, state| {
            backend.facts().await.map_err(|error| error.to_string())?;
            for marker in std::fs::read_dir(state.join("launchers")).map_err(|e| e.to_string())? {
                let pid = marker.map_err(|error| error.to_string())?.file_name();
                let killed = Command::new("kill").arg("-9").arg(pid).status();
                killed.map_err(|error| error.to_string())?;
            }
            // Whoever asks before its end is noticed is told that it ended; the next one gets a new launcher.
            for _ in 0..100 {
                if backend.probe(None).await.works {
                    return Ok(());
                }
            }
            Err("no other launcher came".to_owned())
        })
    }));
    if root {
        for case in CASES {
            trials.push(Trial::test(format!("rootless::{}", case.name), || {
                run_as_ordinary_user(case.name)
            }));
        }
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

fn run(name: &str) -> Result<(), Failed> {
    let case = CASES.iter().find(|case| case.name == name).ok_or("no such case")?;
    with_backend(async |backend, state| {
        let scratch = state.with_file_name("scratch");
        std::fs::create_dir(&scratch).map_err(|error| error.to_string())?;
        case.run(&Bench { backend, scratch, own_kernel: false }).await
    })
}

/// Does something with a backend on a fresh state directory, and looks for what is left.
fn with_backend(act: impl AsyncFnOnce(&Native, &Path) -> Outcome) -> Result<(), Failed> {
    let directory =
        tempfile::Builder::new().prefix("bj").tempdir().map_err(|error| error.to_string())?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| error.to_string())?;
    runtime.block_on(async {
        let launcher = std::env::current_exe().map_err(|error| error.to_string())?;
        let state_dir = directory.path().join("state");
        std::fs::create_dir(&state_dir).map_err(|error| error.to_string())?;
        let backend = Native::new(Options { state_dir: state_dir.clone(), launcher });
        let outcome = act(&backend, &state_dir).await;
        let left = backend.orphans(&[]).await.map_err(|error| error.to_string())?;
        backend.close().await;
        outcome?;
        if left.is_empty() { Ok(()) } else { Err(Failed::from(format!("left behind: {left:?}"))) }
    })
}

fn run_in_this_process(name: &str) -> ExitCode {
    match run(name) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("{}", failed.message().unwrap_or("failed"));
            ExitCode::FAILURE
        }
    }
}

fn run_as_ordinary_user(name: &str) -> Result<(), Failed> {
    let Some((uid, gid)) = user_ids(ORDINARY_USER) else {
        println!("SKIPPED rootless::{name}: there is no user `{ORDINARY_USER}`");
        return Ok(());
    };
    let directory =
        tempfile::Builder::new().prefix("bjr").tempdir().map_err(|error| error.to_string())?;
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755))
        .map_err(|error| error.to_string())?;
    chown(directory.path(), Some(uid), Some(gid)).map_err(|error| error.to_string())?;
    let program = copy_of_this_program(directory.path())?;
    let output = Command::new(program)
        .args(["case", name])
        .uid(uid)
        .gid(gid)
        .env("HOME", directory.path())
        .env("TMPDIR", directory.path())
        .current_dir(directory.path())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(())
    } else {
        Err(Failed::from(String::from_utf8_lossy(&output.stderr).into_owned()))
    }
}

/// The build directory may be out of the ordinary user's reach.
fn copy_of_this_program(directory: &Path) -> Result<PathBuf, Failed> {
    let program = directory.join("conformance");
    let original = std::env::current_exe().map_err(|error| error.to_string())?;
    // By another process: a copy of ours that a neighbouring test forks meanwhile would hold the file open for
    // writing, and the kernel runs no such file.
    let status = Command::new("cp")
        .arg(original)
        .arg(&program)
        .status()
        .map_err(|error| error.to_string())?;
    if status.success() { Ok(program) } else { Err(Failed::from("cannot copy this program")) }
}

fn user_ids(name: &str) -> Option<(u32, u32)> {
    let passwd = std::fs::read_to_string("/etc/passwd").ok()?;
    let mut fields =
        passwd.lines().find(|line| line.starts_with(&format!("{name}:")))?.split(':').skip(2);
    Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
}
