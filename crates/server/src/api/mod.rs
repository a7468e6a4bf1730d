//! What the server can do, once: gRPC and REST are two ways to say it.
//!
//! Every method takes the call (who asks) and a message of the API, and answers with one, or with a stream of them.
//! Permissions, the audit log and metrics are applied in one place, [`Api::act`].

mod files;
mod lists;
mod processes;
mod run;
mod sandboxes;
mod system;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use belljar_engine::Engine;
use futures_util::Stream;

use crate::action::Action;
use crate::call::Call;
use crate::problem::{Problem, Result};
use crate::status::Status;

/// Answers that come one after the other.
pub type Answers<T> = Pin<Box<dyn Stream<Item = Result<T>> + Send>>;

/// The server's abilities. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    engine: Engine,
    status: Arc<Status>,
}

impl Api {
    #[must_use]
    pub fn new(engine: Engine, status: Arc<Status>) -> Self {
        Self { engine, status }
    }

    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// The engine as the server itself sees it.
    pub(crate) fn unscoped(&self) -> &Engine {
        &self.engine
    }

    /// The engine as this caller sees it.
    fn engine(&self, call: &Call) -> Engine {
        self.engine.scoped(call.caller.scope.clone())
    }

    /// Does something in the caller's name: checked first, recorded afterwards.
    async fn act<T>(
        &self,
        call: &Call,
        action: Action,
        target: &str,
        work: impl Future<Output = Result<T>> + Send,
    ) -> Result<T> {
        let begun = Instant::now();
        let result = match call.caller.check(action.permission) {
            Ok(()) => work.await,
            Err(problem) => Err(problem),
        };
        self.record(call, action, target, result.as_ref().err(), begun);
        result
    }

    fn record(
        &self,
        call: &Call,
        action: Action,
        target: &str,
        problem: Option<&Problem>,
        begun: Instant,
    ) {
        let outcome = problem.map_or("ok", |problem| problem.code.as_str());
        tracing::debug!(
            action = action.name,
            actor = %call.caller.actor,
            request = %call.request_id,
            target,
            outcome,
            took = ?begun.elapsed(),
        );
    }
}
