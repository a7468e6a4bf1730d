//! The agent's program, as bytes: a static executable that is PID 1 in every sandbox.

#![forbid(unsafe_code)]

/// The executable, built by this crate's build script.
pub static AGENT: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/agent"));
