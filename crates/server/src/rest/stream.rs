//! Answers that come one after the other: as server-sent events, as lines of JSON, or as plain bytes.
//!
//! Nothing is gathered: a piece is taken from its source when the client has room for it.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, TryStreamExt, stream};
use http::header;
use serde::Serialize;

use crate::api::Answers;
use crate::call::Call;
use crate::problem::Result;

/// So that nothing between server and client takes a silent stream for a dead one.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);

/// How one message becomes an event: its name, and its id where a client can come back to it.
pub(super) struct Named {
    pub(super) name: &'static str,
    pub(super) id: Option<String>,
}

/// Server-sent events. A failure is the last one, as `event: problem`.
pub(super) fn events<T: Serialize + Send + 'static>(
    call: Call,
    answers: Answers<T>,
    mut named: impl FnMut(&T) -> Named + Send + 'static,
) -> Response {
    let events = answers.map(move |answer| {
        Ok::<_, Infallible>(match answer {
            Ok(message) => {
                let Named { name, id } = named(&message);
                let event = Event::default().event(name).data(json(&message));
                id.into_iter().fold(event, |event, id| event.id(id))
            }
            Err(problem) => {
                Event::default().event("problem").data(json(&problem.wire(&call.request_id)))
            }
        })
    });
    let alive = KeepAlive::new().interval(SIGN_OF_LIFE);
    Sse::new(events).keep_alive(alive).into_response()
}

/// The same answers, once the first is known: what fails before anything was sent is told as a problem.
pub(super) async fn begun<T: Send + 'static>(mut answers: Answers<T>) -> Result<Answers<T>> {
    // One that has ended may not be asked again.
    let Some(first) = answers.next().await else { return Ok(Box::pin(stream::empty())) };
    Ok(Box::pin(stream::iter([Ok(first?)]).chain(answers)))
}

/// A JSON value per line. A failure breaks the answer off.
pub(super) fn lines<T: Serialize + Send + 'static>(answers: Answers<T>) -> Response {
    let lines = answers.map_ok(|message| Bytes::from(json(&message) + "\n"));
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

/// Plain bytes. A failure breaks the answer off.
pub(super) fn bytes(pieces: impl Stream<Item = Result<Bytes>> + Send + 'static) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/octet-stream")];
    (kind, Body::from_stream(pieces)).into_response()
}

/// All answers at once, up to a number; `true` where there were more.
pub(super) async fn gather<T>(mut answers: Answers<T>, most: usize) -> Result<(Vec<T>, bool)> {
    let mut gathered = Vec::new();
    while let Some(answer) = answers.next().await {
        if gathered.len() == most {
            return Ok((gathered, true));
        }
        gathered.push(answer?);
    }
    Ok((gathered, false))
}

fn json<T: Serialize>(message: &T) -> String {
    // Keys are text and nothing refuses to be written.
    serde_json::to_string(message).expect("messages of the API have a JSON form")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ends after `count`, and panics where it is asked again after its end.
    fn counted(count: usize) -> Answers<usize> {
        Box::pin(stream::unfold(0, move |at| {
            std::future::ready((at < count).then_some((Ok(at), at + 1)))
        }))
    }

    #[tokio::test]
    async fn a_stream_is_begun_once_whatever_its_length() {
        for count in [0, 1, 3] {
            let answers = begun(counted(count)).await.unwrap();
            let (all, more) = gather(answers, 10).await.unwrap();
            assert_eq!((all, more), ((0..count).collect(), false));
        }
    }
}
