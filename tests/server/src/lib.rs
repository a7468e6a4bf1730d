//! What tests of the real server need: a server child on a state directory of its own that can be killed and started
//! again, short words for requests, and a load whose every byte is known beforehand.
//!
//! Nothing here knows the server's insides: everything goes through the API, `/proc` and signals.

#![forbid(unsafe_code)]
#![allow(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "helpers of tests fail the test"
)]

mod host;
pub mod load;
pub mod measure;
mod requests;

pub use host::{Host, settled};
pub use requests::*;
