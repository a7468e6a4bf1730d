//! The probe that attacks a sandbox from inside, and the report it gives.
//!
//! `belljar-probe <name> [arguments]` tries forbidden actions and, for each kind, a harmless twin that must work. It
//! prints one line of JSON and judges nothing; the tests beside it judge the line together with what the host shows.
//! Raw system calls live in [`raw`] and nowhere else.

#![deny(unsafe_code)]

pub mod errno;
pub mod probes;
pub mod raw;
pub mod report;

pub use report::{Attempt, Outcome, Report};
