//! Repository chores that are longer than a few lines: code generation and its freshness check.
//!
//! `cargo run -p xtask -- codegen` writes what is generated and checked in; `--check` only compares, for CI.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)] // Talking to the person who runs it is this program's job.

mod codegen;
mod schema;

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["codegen"] => codegen::run(&root(), codegen::Mode::Write),
        ["codegen", "--check"] => codegen::run(&root(), codegen::Mode::Check),
        _ => bail!("usage: xtask codegen [--check]"),
    }
}

/// The repository's top directory.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lives one level below the root")
        .to_owned()
}
