//! The real server binary, from outside.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod files;
mod full_disk;
mod keys;
mod long_work;
mod policies;
mod ports;
mod processes;
mod recovery;
mod sandboxes;
mod servers;
mod snapshots;
mod tenancy;
mod transports;
