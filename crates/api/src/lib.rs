//! The public API: messages and services generated from `api/proto`, and their JSON form.
//!
//! Each message serialises to the JSON that REST answers with and `--json` prints, so that one shape has one
//! definition. Nothing else is here: who may call what is the server's, where a server is found is the client's.

#![forbid(unsafe_code)]

mod json;
pub mod problem;
mod quiet;

/// Version 1 of the API.
#[allow(clippy::all, clippy::pedantic, missing_docs, unused_qualifications, unreachable_pub)]
pub mod v1 {
    include!("generated.rs");
}

pub use json::{parse_rfc3339, rfc3339};
/// A point in time, as it travels.
pub use prost_types::Timestamp;
