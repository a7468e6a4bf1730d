//! Builds the agent with the workspace's `agent` profile for the musl target of the architecture being built for.
//!
//! A second cargo runs inside the first, so it gets a target directory of its own (the outer one is locked) and none of
//! the outer build's settings: flags meant for the host program must not reach the agent.
#![allow(clippy::print_stdout)] // Build scripts speak to cargo.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

const PROFILE: &str = "agent";

/// What the agent is made from.
const SOURCES: &[&str] = &[
    "crates/agent/src",
    "crates/agent/Cargo.toml",
    "crates/agent/build.rs",
    "crates/agent/without-unwinding.ld",
    "crates/protocol/Cargo.toml",
    "crates/protocol/src",
    "crates/sys/Cargo.toml",
    "crates/sys/src",
    "Cargo.lock",
    "Cargo.toml",
];

fn main() {
    let root = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().expect("this crate is two levels below the workspace");
    for source in SOURCES {
        // As seen from here: another clone that goes on with what was built is to look at its own.
        println!("cargo:rerun-if-changed=../../{source}");
    }
    let target = format!("{}-unknown-linux-musl", variable("CARGO_CFG_TARGET_ARCH"));
    require_target(&target);
    let agent = build(&root, &target);
    println!("cargo:rustc-env=BELLJAR_AGENT_PATH={}", agent.display());
}

fn build(root: &Path, target: &str) -> PathBuf {
    let directory = PathBuf::from(variable("OUT_DIR")).join("agent-target");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--package", "belljar-agent", "--bin", "belljar-agent"])
        .args(["--profile", PROFILE, "--target", target, "--target-dir"])
        .arg(&directory)
        .current_dir(root);
    // The outer build has a lock file by now, if only because this script runs.
    if root.join("Cargo.lock").exists() {
        cargo.arg("--locked");
    }
    forget_outer_build(&mut cargo);
    let status = cargo.status().expect("cargo is running us, so it can be run");
    assert!(status.success(), "the agent could not be built for {target} (see above)");
    directory.join(target).join(PROFILE).join("belljar-agent")
}

/// Takes away what the outer cargo told this script about its own build.
fn forget_outer_build(cargo: &mut Command) {
    for (name, _) in env::vars_os() {
        if name.to_str().is_some_and(concerns_outer_build) {
            cargo.env_remove(name);
        }
    }
}

fn concerns_outer_build(name: &str) -> bool {
    /// What describes the machine and the user's own configuration.
    const KEPT: [&str; 7] = [
        "CARGO_HOME",
        "CARGO_NET_",
        "CARGO_HTTP_",
        "CARGO_REGISTR",
        "CARGO_SOURCE_",
        "CARGO_TERM_",
        "CARGO_BUILD_JOBS",
    ];
    const SET_FOR_SCRIPTS: [&str; 10] = [
        "CLIPPY_ARGS",
        "DEBUG",
        "HOST",
        "MAKEFLAGS",
        "NUM_JOBS",
        "OPT_LEVEL",
        "OUT_DIR",
        "PROFILE",
        "RUSTFLAGS",
        "TARGET",
    ];
    let from_cargo = name.starts_with("CARGO") && !KEPT.iter().any(|kept| name.starts_with(kept));
    let from_rustc = name.starts_with("RUSTC") || name == "RUSTDOCFLAGS";
    from_cargo || from_rustc || SET_FOR_SCRIPTS.contains(&name)
}

/// Makes sure that the standard library for the target is there, by rustup if need be.
fn require_target(target: &str) {
    if is_installed(target) {
        return;
    }
    let added = Command::new("rustup").args(["target", "add", target]).status();
    let remedy = format!(
        "the Rust target `{target}` is needed to build the agent; install it with \
         `rustup target add {target}`, or your distribution's package of Rust's musl libraries"
    );
    assert!(added.is_ok_and(|status| status.success()) && is_installed(target), "{remedy}");
}

fn is_installed(target: &str) -> bool {
    let output = Command::new(variable("RUSTC"))
        .args(["--print", "target-libdir", "--target", target])
        .output();
    output.is_ok_and(|output| {
        let directory = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        std::fs::read_dir(directory).is_ok_and(|mut entries| {
            entries.any(|entry| {
                entry.is_ok_and(|entry| entry.file_name().to_string_lossy().starts_with("libstd-"))
            })
        })
    })
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
