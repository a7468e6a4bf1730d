//! The agent as a host sees it, running as an ordinary process without walls, and as PID 1 with all of them.
#![allow(clippy::unwrap_used, clippy::print_stderr)] // A test that fails says where; one that cannot run says why.

mod host;

mod conversation;
mod direct;
mod files;
mod owners;
mod processes;
mod reconnect;
mod sandbox;
mod terminals;
mod tools;
mod trees;
mod walls;
