//! Why a question got no answer.

use thiserror::Error;

/// Why a question got no answer. For decisions, each of them means no.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CallError {
    #[error("no client that answers for it is connected")]
    Absent,
    #[error("the client that answers for it went away")]
    Vanished,
    #[error("the client did not answer in time")]
    TimedOut,
    #[error("the client has too many calls to answer already")]
    Busy,
    /// The client's own words.
    #[error("{0}")]
    Failed(String),
    #[error("the client's answer cannot be used: {0}")]
    Malformed(String),
}
