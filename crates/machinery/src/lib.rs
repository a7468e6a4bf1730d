//! What sandboxes on this host are made of, whichever wall encloses them.
//!
//! A [`Machine`] owns the one launcher process of an installation and knows what to ask it for: which root
//! ([`host`], [`rootfs`]), which mechanism enforces which limit ([`mechanism`]), which system calls ([`seccomp`]), what
//! the agent is told ([`setup`]). What differs between backends is a value, the [`Wall`]. Guarantees: a sandbox gets what
//! its specification names and nothing else, or an error with the rule that cannot be kept.
//!
//! Not here: choosing between backends (`engine`), and doing any of it (`launcher`).

#![forbid(unsafe_code)]

mod client;
mod doors;
mod explain;
pub mod host;
pub mod host_path;
mod init;
mod machine;
pub mod masks;
mod mechanism;
pub mod names;
pub mod probe;
pub mod programs;
mod request;
pub mod rootfs;
pub mod seccomp;
mod setup;
pub mod skeleton;
pub mod tools;
mod wall;

pub use belljar_launcher::wire::{Facts, Platform, RuntimeKind};
pub use machine::{Machine, Options};
pub use wall::{Runtime, Wall};
