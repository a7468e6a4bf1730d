//! What the server can do, once: gRPC and REST are two ways to say it.
//!
//! Every method takes the call (who asks) and a message of the API, and answers with one, or with a stream of them.
//! Permissions, the audit log and metrics are applied in one place, [`Api::act`].

mod audit;
mod callbacks;
mod fetch;
mod files;
mod keys;
mod lists;
mod networks;
mod policies;
mod ports;
mod processes;
mod run;
mod sandboxes;
mod secrets;
mod snapshots;
mod system;
mod tenants;
mod tokens;
mod trees;
mod webhooks;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use belljar_codes::Code;
use belljar_engine::{Asker, Engine, SandboxId, Scope};
use futures_util::{Stream, StreamExt, stream};

use crate::action::Action;
use crate::call::Call;
use crate::callbacks::Callbacks;
use crate::caller::{Caller, Proof};
use crate::convert::required;
use crate::limit::Limits;
use crate::measure;
use crate::problem::{Problem, Result};
use crate::status::Status;
use crate::token::{self, Tokens};
use crate::tools::Tools;

/// Answers that come one after the other.
pub type Answers<T> = Pin<Box<dyn Stream<Item = Result<T>> + Send>>;

/// The server's abilities. Cheap to clone.
#[derive(Clone)]
pub struct Api {
    engine: Engine,
    status: Arc<Status>,
    tokens: Arc<Tokens>,
    callbacks: Callbacks,
    limits: Limits,
}

impl Api {
    #[must_use]
    pub fn new(engine: Engine, status: Arc<Status>) -> Self {
        let tokens = Arc::new(Tokens::of(engine.state_dir()));
        let callbacks = Callbacks::default();
        engine.serve_tools(Arc::new(Tools::new(callbacks.clone())));
        engine.decide_networks(Arc::new(callbacks.clone()));
        let limits = Limits::new(engine.clone());
        Self { engine, status, tokens, callbacks, limits }
    }

    #[must_use]
    pub fn status(&self) -> &Status {
        &self.status
    }

    /// The clients that answer for sandboxes.
    #[must_use]
    pub fn callbacks(&self) -> &Callbacks {
        &self.callbacks
    }

    /// The engine as the server itself sees it.
    pub(crate) fn unscoped(&self) -> &Engine {
        &self.engine
    }

    /// How much callers may ask.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Whether a caller whose request goes on may ask for one more thing within it, as a request of its own would.
    pub(crate) async fn ask_within(&self, call: &Call) -> Result<()> {
        self.ask_before_long(call, Duration::ZERO).await
    }

    /// The same for who may wait for so long.
    pub(crate) async fn ask_before_long(&self, call: &Call, patience: Duration) -> Result<()> {
        if !call.caller.is_admin() {
            self.limits.count(&call.caller.tenant(), patience).await?;
        }
        // Last: that may have taken a while.
        self.still_let_in(call).await
    }

    /// Refuses who was let in by a key that opens nothing any more, for what is asked for later within a request.
    pub(crate) async fn still_let_in(&self, call: &Call) -> Result<()> {
        let Caller { key, proof, expires_at, .. } = &call.caller;
        let in_time = expires_at.is_none_or(|at| SystemTime::now() < at);
        let stands = match key {
            // Keys of the operator's own end with the server.
            Some(key) if in_time && !token::is_own(key) => self.engine.keys().opens(key).await?,
            _ => in_time,
        };
        match proof {
            _ if stands => Ok(()),
            Proof::Token => Err(token::invalid()),
            _ => Err(Problem::new(Code::Unauthenticated, "the API key has expired or was revoked")
                .with_remedy("connect again with another one")),
        }
    }

    pub(crate) fn tokens(&self) -> &Arc<Tokens> {
        &self.tokens
    }

    /// The engine as this caller sees it.
    fn engine(&self, call: &Call) -> Engine {
        self.engine_in(call, call.caller.scope.clone())
    }

    /// The engine as this caller sees it in the scope that was asked for.
    fn engine_in(&self, call: &Call, scope: Scope) -> Engine {
        self.engine.scoped(scope).asked_by(Asker {
            actor: call.caller.actor.to_string(),
            request_id: call.request_id.to_string(),
        })
    }

    /// The sandbox that a request is about.
    async fn subject(&self, call: &Call, reference: &str) -> Result<SandboxId> {
        let reference = required("sandbox", reference)?;
        let (id, tenant) = self.engine(call).locate(reference).await?;
        call.concerns(&id, &tenant);
        Ok(id)
    }

    /// Answers that break off when the server is about to end, so that nobody keeps it from ending: who follows
    /// something can go on where it was with the next server.
    fn until_stopped<T: Send + 'static>(
        &self,
        answers: impl Stream<Item = Result<T>> + Send + 'static,
    ) -> Answers<T> {
        let state = Some((Box::pin(answers), Arc::clone(&self.status)));
        Box::pin(stream::unfold(state, async |state| {
            let (mut answers, status) = state?;
            tokio::select! {
                biased;
                answer = answers.next() => answer.map(|answer| (answer, Some((answers, status)))),
                () = status.stopped() => Some((Err(stopping()), None)),
            }
        }))
    }

    /// Does something in the caller's name: checked first, recorded afterwards.
    ///
    /// The work is boxed at once: a future that is handed on is part of the one it is handed to, twice; that of a creation had
    /// 90 KB by the time it was boxed.
    fn act<T: Send>(
        &self,
        call: &Call,
        action: Action,
        target: &str,
        work: impl Future<Output = Result<T>> + Send,
    ) -> impl Future<Output = Result<T>> + Send {
        let work = Box::pin(work);
        async move {
            let mut recording =
                Recording { api: self, call, action, target, begun: Instant::now(), done: false };
            let result = match call.caller.check(action.permission) {
                Ok(()) => work.await,
                Err(problem) => Err(problem),
            };
            recording.end(result.as_ref().err());
            result.map_err(Problem::counted)
        }
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
        let span = tracing::Span::current();
        span.record("action", action.name).record("outcome", outcome);
        measure::request(action, problem, begun.elapsed());
        if action.audited {
            self.put_on_record(call, action, target, outcome);
        }
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

/// A request under way. Who goes away before the answer is on record too: what they asked for may have been done.
struct Recording<'a> {
    api: &'a Api,
    call: &'a Call,
    action: Action,
    target: &'a str,
    begun: Instant,
    done: bool,
}

impl Recording<'_> {
    fn end(&mut self, problem: Option<&Problem>) {
        self.done = true;
        self.api.record(self.call, self.action, self.target, problem, self.begun);
    }
}

impl Drop for Recording<'_> {
    fn drop(&mut self) {
        if !self.done {
            let gone = Problem::new(Code::Interrupted, "the caller went away before the answer");
            self.end(Some(&gone));
        }
    }
}

fn stopping() -> Problem {
    Problem::new(Code::ServerStopping, "the server is about to end")
        .with_remedy("connect again and go on from the last offset")
}
