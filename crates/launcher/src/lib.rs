//! The launcher: the one part of Belljar on the host that holds privilege.
//!
//! A separate, single-threaded process. It takes typed requests over a socket pair ([`wire`]), makes and removes the
//! namespaces, mounts, cgroups and disks of sandboxes, and answers. It opens no network connection, parses no text
//! from users and never follows a path that a sandbox controls; directories reach it as descriptors that the
//! unprivileged side could open with its own rights.
//!
//! As root it gives every sandbox its own range of user ids. As an ordinary user it does the same work inside a user
//! namespace per sandbox that maps one id. Sandboxes outlive it: everything needed to find and remove one again
//! follows from the sandbox's id and the files in the state directory.

#![forbid(unsafe_code)]

mod bare;
mod bundle;
mod disk;
mod doors;
mod failure;
pub mod fault;
mod gateway;
mod helper;
mod ids;
mod layer;
mod place;
mod plan;
mod run;
mod runtime;
mod serve;
mod start;
mod stop;
mod sweeper;
pub mod wire;

pub use serve::main;
