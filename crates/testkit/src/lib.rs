//! What tests need to drive the real `belljar` binary: find it, run it as root or as an ordinary user with a state
//! directory of its own, hold sandboxes, and look for anything left behind.
//!
//! [`matrix!`] writes a test once and runs it in every [`Mode`]; a mode that this machine does not offer is printed as
//! `SKIPPED <test>: <reason>`, never passed over in silence. Every such test ends with a leak check.

#![forbid(unsafe_code)]

pub mod build;
mod command;
mod directory;
mod dockerd;
mod installation;
pub mod leaks;
mod matrix;
mod mode;
mod podman;
mod runtime;
mod sandbox;
mod turn;
mod wait;

pub use command::{Finished, Started};
pub use directory::has_mounts;
pub use dockerd::{Dockerd, write_busybox};
pub use installation::{Installation, Refusal};
pub use matrix::{run_in, run_in_engine, skip};
pub use mode::{Account, Mode};
pub use sandbox::Sandbox;
pub use turn::Turn;
pub use wait::{PROMPT, wait_until};
