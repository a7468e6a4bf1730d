//! Calls of tools from inside sandboxes, on their way to who answers them.
//!
//! The agent passes on what anyone inside says. Here it is bounded: how large, how many at once, how often. What a call
//! means, whether it is allowed and who runs it is for the [`ToolHost`], which whoever serves this engine provides. Every
//! call gets an answer: a caller never waits for somebody who is not there.

mod attend;
mod rate;

use std::sync::Arc;

use async_trait::async_trait;
use belljar_codes::Code;
use belljar_policy::{ProcessId, SandboxId, TenantId};

pub(crate) use attend::{Sender, Told, attend, channel, exist, reach_all};

use crate::Engine;

/// The largest arguments that are passed on, and the largest result that is passed back.
pub const MAX_TOOL_ARGUMENTS: usize = 128 << 10;
pub const MAX_TOOL_RESULT: usize = 1 << 20;

/// Answers calls.
#[async_trait]
pub trait ToolHost: Send + Sync {
    /// Runs a tool. Dropping the future ends what was begun. The result is JSON text.
    async fn call(&self, engine: &Engine, call: ToolCall) -> Result<String, ToolFailure>;

    /// The tools that exist in a sandbox now, as JSON text.
    async fn list(&self, engine: &Engine, sandbox: &SandboxId) -> Result<String, ToolFailure>;
}

/// A call as it came from inside: nothing about it was checked but its size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolCall {
    pub sandbox: SandboxId,
    pub tenant: TenantId,
    pub name: String,
    /// Supposed to be JSON.
    pub arguments: String,
    /// The process that calls, where that is known.
    pub process: Option<ProcessId>,
}

/// Why a call has no result. Both parts are told inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolFailure {
    pub code: Code,
    pub message: String,
}

impl ToolFailure {
    #[must_use]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

impl From<crate::Error> for ToolFailure {
    /// What went wrong on the host in detail is not for the sandbox to know; a refusal is.
    fn from(error: crate::Error) -> Self {
        match error.code() {
            Code::PolicyDenied => Self::new(Code::PolicyDenied, error.to_string()),
            _ => {
                tracing::warn!(%error, "a call of a tool failed");
                Self::new(Code::Internal, "the host could not do it")
            }
        }
    }
}

/// The engine as the host of tools sees it.
fn engine(inner: &Arc<crate::engine::Inner>) -> Engine {
    Engine::unscoped(inner)
}
