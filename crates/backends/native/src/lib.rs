//! The native backend: namespaces, overlay, cgroups, seccomp and Landlock, from this one binary.
//!
//! Isolation class `namespace`. Works as root, with a range of user ids per sandbox, and as an ordinary user, with
//! one. The privileged work is done by the launcher process ([`client`]); this crate decides what it is asked for:
//! which root ([`host`]), which mechanism enforces which limit ([`mechanism`]), which system calls ([`seccomp`]).

#![forbid(unsafe_code)]

mod backend;
mod client;
mod doors;
mod explain;
mod host;
mod host_path;
mod mechanism;
mod names;
mod programs;
mod rootfs;
pub mod seccomp;
mod skeleton;
mod tools;

pub use backend::{Native, Options};
