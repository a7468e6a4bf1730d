//! The API over gRPC: each method hands its message on and wraps what comes back.

mod services;

use belljar_codes::Code;
use futures_util::{Stream, StreamExt};
use tonic::{Request, Response, Status};

use crate::api::{Answers, Api};
use crate::call::Call;
use crate::patience::{self, FIRST_WORD};
use crate::problem::{Problem, Result};

pub(crate) use services::routes;

/// All services of the API.
#[derive(Clone)]
pub(crate) struct Services(Api);

impl Services {
    /// The first message of a stream, which says what the others are for. It comes soon, from who is still let in then.
    async fn first<T>(
        &self,
        call: &Call,
        messages: &mut tonic::Streaming<T>,
    ) -> std::result::Result<T, Status> {
        let told = |problem: Problem| problem.status(&call.request_id);
        let first = tokio::time::timeout(FIRST_WORD, messages.message());
        let first = first.await.map_err(|_| told(patience::stalled()))??;
        self.0.still_let_in(call).await.map_err(told)?;
        first.ok_or_else(|| {
            told(
                Problem::invalid("the stream ended before its first message")
                    .with_remedy("say first what it is about"),
            )
        })
    }
}

/// Messages that go out one after the other.
type Outgoing<T> = std::pin::Pin<Box<dyn Stream<Item = std::result::Result<T, Status>> + Send>>;

/// Takes the call that was put into the request when its sender was identified.
fn call_of<T>(request: &Request<T>) -> std::result::Result<Call, Status> {
    // A request that came past identification would be a bug, and is nobody's.
    request
        .extensions()
        .get::<Call>()
        .cloned()
        .ok_or_else(|| Problem::new(Code::Unauthenticated, "nobody in particular asks").status(""))
}

fn answer<T>(call: &Call, result: Result<T>) -> std::result::Result<Response<T>, Status> {
    result.map(Response::new).map_err(|problem| problem.status(&call.request_id))
}

fn answers<T: Send + 'static>(
    call: Call,
    result: Result<Answers<T>>,
) -> std::result::Result<Response<Outgoing<T>>, Status> {
    let answers = result.map_err(|problem| problem.status(&call.request_id))?;
    let outgoing =
        answers.map(move |answer| answer.map_err(|problem| problem.status(&call.request_id)));
    Ok(Response::new(Box::pin(outgoing)))
}

/// What follows on the first message.
fn rest<T: Send + 'static>(messages: tonic::Streaming<T>) -> impl Stream<Item = Result<T>> + Send {
    messages.map(|message| {
        message.map_err(|status| match status.code() {
            tonic::Code::DeadlineExceeded => patience::stalled(),
            _ => Problem::new(Code::Interrupted, "the stream broke off").caused_by(&status),
        })
    })
}
