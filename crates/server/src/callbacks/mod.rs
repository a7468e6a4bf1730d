//! Questions that the server asks its clients: tools, connections, requests, secrets.
//!
//! A client that is connected says which sandbox it serves and what it answers for; the [`Callbacks`] registry finds it
//! by sandbox and asks. A client that went away makes what waits for it fail at once, one that does not answer makes it
//! fail at its deadline, and where nobody is, the answer is [`CallError::Absent`]: whoever asks denies. Everything that
//! a client sends is bounded and checked here, so that whoever asks gets an answer that means something.
//!
//! Not here: who may serve which sandbox (the API's, by scope), and what is asked (the tools' and the egress').

mod client;
mod decide;
mod declaration;
mod error;
mod json;
mod registry;
#[cfg(test)]
mod tests;
mod verdict;

pub(crate) use client::Client;
pub use declaration::Declaration;
pub(crate) use declaration::Offer;
pub use error::CallError;
pub use json::check_json;
pub use registry::Callbacks;
pub(crate) use registry::Registered;

/// The largest message that a client may send: a result as JSON text inside JSON can be twice its size.
pub(crate) const MAX_MESSAGE: usize = 4 << 20;
/// The largest result of a tool, as JSON text.
pub const MAX_RESULT: usize = belljar_engine::MAX_TOOL_RESULT;
/// Deeper JSON is refused before anything recursive sees it.
pub const MAX_JSON_DEPTH: usize = 64;
/// Calls that wait for one client.
pub(crate) const MAX_CALLS: u32 = 128;
/// Tools of one client, and clients of one sandbox.
const MAX_TOOLS: usize = 128;
const MAX_CLIENTS: usize = 16;
/// Secrets that one client gives.
const MAX_SECRETS: usize = 64;
/// Words of a client that are passed on to people.
const MAX_WORDS: usize = 4 << 10;

const _: () = assert!(MAX_MESSAGE > 2 * MAX_RESULT, "a result fits into a message");
