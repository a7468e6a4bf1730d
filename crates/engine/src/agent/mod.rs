//! Talking to the agent inside a sandbox.
//!
//! One [`Connection`] carries many streams; each request opens one. A reader task sorts incoming frames into the
//! streams' queues and never waits for a consumer, so one slow stream cannot hold up another; how much a queue can hold
//! is bounded by the window that the agent was configured with, and an agent that sends more is cut off.
//!
//! Not here: what a process or a file operation means (see `process` and `files`).

mod configure;
mod connection;
mod failure;
mod outgoing;
mod queue;
mod stream;

pub(crate) use configure::{Identity, configuration, environment_of, user_message};
pub(crate) use connection::{Connection, Report, Reporter};
pub(crate) use failure::AgentError;
pub(crate) use stream::Stream;

/// Bytes of output or file content that may be unacknowledged, per channel.
pub(crate) const WINDOW: usize = 256 << 10;
