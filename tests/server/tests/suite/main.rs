//! The real server binary, from outside.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod keys;
mod processes;
mod recovery;
mod tenancy;
mod transports;
