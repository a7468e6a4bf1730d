//! Repository chores that are longer than a few lines: code generation and its freshness check, and packaging.
//!
//! `cargo run -p xtask -- codegen` writes what is generated and checked in; `--check` only compares, for CI.
//! `cargo run -p xtask -- wheel BINARY DIRECTORY` makes a Python wheel that carries the program.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout)] // Talking to the person who runs it is this program's job.

mod codegen;
mod schema;
mod wheel;

use anyhow::{Result, bail};
use std::path::{Path, PathBuf};

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["codegen"] => codegen::run(&root(), codegen::Mode::Write),
        ["codegen", "--check"] => codegen::run(&root(), codegen::Mode::Check),
        ["wheel", binary, target] => wheel::run(&root(), Path::new(binary), Path::new(target)),
        _ => bail!("usage: xtask codegen [--check] | wheel BINARY DIRECTORY"),
    }
}

/// The repository's top directory.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask lives one level below the root")
        .to_owned()
}
