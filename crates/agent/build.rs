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
        // A copy: what is printed here is kept with what was built, which another clone may go on with.
        let directory = std::env::var("OUT_DIR").expect("cargo runs this");
        let script = format!("{directory}/{WITHOUT_UNWINDING}");
        std::fs::copy(WITHOUT_UNWINDING, &script).expect("it is beside this file");
        println!("cargo:rustc-link-arg-bins=-Wl,-T,{script}");
    }
}
