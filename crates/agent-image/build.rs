//! Builds the agent, static, for this machine's architecture, so that one file is the whole installation.
//!
//! A cargo inside a cargo: it has a target directory of its own, so neither waits for the other's lock, and it sees
//! nothing of the outer build's settings.

use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let manifest = PathBuf::from(variable("CARGO_MANIFEST_DIR"));
    let root = manifest.join("../..");
    let target = format!("{}-unknown-linux-musl", variable("CARGO_CFG_TARGET_ARCH"));
    for path in ["crates/agent", "crates/protocol", "crates/sys", "Cargo.lock", "Cargo.toml"] {
        println!("cargo::rerun-if-changed={}", root.join(path).display());
    }
    ensure_target(&target);
    let output = PathBuf::from(variable("OUT_DIR"));
    let directory = output.join("agent-target");
    let mut cargo = Command::new(variable("CARGO"));
    cargo
        .args(["build", "--quiet", "--profile", "agent", "--package", "belljar-agent", "--target", &target])
        .arg("--manifest-path")
        .arg(root.join("Cargo.toml"))
        .arg("--target-dir")
        .arg(&directory);
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let outer = text.starts_with("CARGO_") && text != "CARGO_HOME" && !text.starts_with("CARGO_NET")
            && !text.starts_with("CARGO_REGISTRIES") && !text.starts_with("CARGO_SOURCE") && !text.starts_with("CARGO_HTTP");
        if outer || text == "RUSTFLAGS" || text.starts_with("RUSTC_W") {
            cargo.env_remove(&name);
        }
    }
    let status = cargo.status().expect("cargo can be started again");
    assert!(status.success(), "the agent does not build for {target}");
    let built = directory.join(&target).join("agent/belljar-agent");
    std::fs::copy(&built, output.join("agent")).expect("the built agent can be copied");
}

/// Without the standard library for a static target nothing can be built; rustup has it.
fn ensure_target(target: &str) {
    let rustc = variable("RUSTC");
    let printed = Command::new(rustc).args(["--print", "target-libdir", "--target", target]).output();
    let directory = printed.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned()).unwrap_or_default();
    if Path::new(&directory).exists() {
        return;
    }
    let added = Command::new("rustup").args(["target", "add", target]).status();
    assert!(
        added.is_ok_and(|status| status.success()),
        "the Rust target {target} is needed for the agent; install it with `rustup target add {target}`"
    );
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
