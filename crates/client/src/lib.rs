//! Finds, starts and talks to a Belljar server.
//!
//! [`Client`] is the generated services on one connection, with the caller's key. [`Address`] names a server
//! elsewhere; [`Local`] is the one of a state directory, which is started when there is none. Nothing here knows about
//! arguments, settings or output.

#![forbid(unsafe_code)]

mod address;
mod client;
mod end;
mod failure;
mod local;
mod start;

pub use address::Address;
pub use client::{Authorize, Client, Service};
pub use end::Ending;
pub use failure::Failure;
pub use local::Local;

/// What the generated clients answer with, so that users need not name the library behind them.
pub use tonic::{Status, Streaming, transport::Channel};
