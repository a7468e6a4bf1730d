//! What the host and the agent say to each other: messages, framing, version negotiation.
//!
//! Pure: no I/O, nothing spawned, no backend known. `proto/agent.proto` is the specification; [`v1`] has the types
//! generated from it, [`codec`] turns them into length-prefixed bytes and back, within [`MAX_FRAME`].
#![forbid(unsafe_code)]

pub mod codec;
#[allow(clippy::all, missing_docs, unreachable_pub, unused_qualifications)]
#[rustfmt::skip]
mod generated;
mod version;

/// The messages of protocol version 1.
pub mod v1 {
    pub use crate::generated::*;
}

pub use codec::{Decoder, Error, encode, encode_output};
pub use version::{OLDEST_VERSION, VERSION, negotiate};

/// The largest encoded `Frame` that either side accepts, without its length prefix.
pub const MAX_FRAME: usize = 256 * 1024;

/// The most bytes of bulk data in one `Output`, `Input` or `Data`.
pub const MAX_CHUNK: usize = 64 * 1024;

// A chunk with everything around it always fits into a frame.
const _: () = assert!(MAX_CHUNK + 1024 <= MAX_FRAME);
