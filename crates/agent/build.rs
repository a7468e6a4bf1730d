//! Link settings of the static agent.
#![allow(clippy::print_stdout)] // Build scripts speak to cargo.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("musl") {
        // The index of tables for unwinding: the agent aborts instead of unwinding, so nobody looks anything up.
        println!("cargo:rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
    }
}
