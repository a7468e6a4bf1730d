//! The `docker` backend: sandboxes as hardened containers of a Docker or Podman engine.
//!
//! Isolation class by the runtime that the engine uses: `namespace`, or `kernel` with gVisor and `vm` with Kata. The engine makes the
//! container; our agent is its first process and does the rest, behind the same system call table and Landlock rules as
//! everywhere. Nothing is published: a stream to the agent is a program of the container that the engine attaches us to.
//!
//! Guarantees: a container is never weaker than its specification says, never has a bridge, and only containers with this
//! installation's label are ever looked at or touched. Not here: the gateway of a network, which the launcher makes.

#![forbid(unsafe_code)]

mod agent;
mod archive;
mod backend;
mod binds;
mod container;
mod counters;
mod daemon;
mod disks;
mod failure;
mod images;
mod inside;
mod labels;
mod life;
mod limits;
mod memory;
mod network;
mod podman;
mod programs;
mod pull;
mod reach;
mod relay;
mod root;
mod setup;
mod start;
mod trial;
mod usage;

pub use backend::Docker;
pub use daemon::Options;
