//! The control plane: gRPC, gRPC-Web, REST and WebSocket over the engine, on TCP and on a Unix socket.
//!
//! A request passes, in this order: the listener (bounded, protocol recognised), the gate (who asks), a service (gRPC
//! or REST), and the [`api`], where permissions are checked, the engine is asked within the caller's scope, and what
//! was done is recorded. What lies outside a caller's scope does not exist for it.
//!
//! Not here: arguments and environment (the binary's), and everything about sandboxes themselves (the engine's).

#![forbid(unsafe_code)]

#[allow(dead_code)]
mod action;
pub mod api;
mod authenticate;
mod body;
mod call;
pub mod callbacks;
mod caller;
mod convert;
mod embedded;
mod grpc;
mod hand_over;
mod limit;
mod listen;
mod measure;
mod opening;
mod own_keys;
mod patience;
mod peer;
mod preview;
mod problem;
mod random;
mod respond;
mod rest;
mod router;
mod server;
mod socket_file;
mod status;
mod telemetry;
mod tls;
mod token;
mod tools;
mod webhook;

pub use call::Call;
pub use caller::{Caller, Permission, Proof};
pub use embedded::embedded;
pub use own_keys::OwnKeys;
pub use patience::Patience;
pub use problem::{Problem, Result};
pub use server::{Claim, Options, serve, socket_path};
pub use status::Status;
pub use telemetry::Telemetry;
pub use tls::Tls;
