//! Link settings of the static agent.
#![allow(clippy::print_stdout)] // Build scripts speak to cargo.

const WITHOUT_UNWINDING: &str = "without-unwinding.ld";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={WITHOUT_UNWINDING}");
    if std::env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("musl") {
        // The tables for unwinding and their index: the agent aborts instead of unwinding, so nobody looks anything up.
        println!("cargo:rustc-link-arg-bins=-Wl,--no-eh-frame-hdr");
        // Places that hold addresses, as one bit each instead of 24 bytes. A linker that does not know this says so and
        // goes on.
        println!("cargo:rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
        let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs this");
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{here}/{WITHOUT_UNWINDING}");
    }
}
