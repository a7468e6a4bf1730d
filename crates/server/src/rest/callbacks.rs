//! Callbacks over a WebSocket: each message of the conversation is one text message of JSON.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use axum::response::Response;
use belljar_api::v1;
use belljar_codes::Code;
use bytes::Bytes;
use futures_util::{SinkExt, Stream, StreamExt};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::upgrade::Upgrade;
use crate::api::Api;
use crate::call::Call;
use crate::callbacks::MAX_MESSAGE;
use crate::problem::{Problem, Result};

/// How often a client is asked whether it is still there. One that said nothing since the last time is gone.
const SIGN_OF_LIFE: Duration = Duration::from_secs(15);
/// A client that was told goodbye has so long to say it too.
const GOODBYE: Duration = Duration::from_secs(5);

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(serve))
}

/// Answers for a sandbox over a WebSocket: tools, connections, requests.
///
/// Text messages of JSON in both directions, of the shape of `ClientCallback` and `ServerCallback`. The first is
/// `{"hello": {"sandbox_id": …}}`, answered by `{"ready": …}`. A conversation that ends for a reason ends with
/// `{"problem": …}`.
#[utoipa::path(
    get, path = "/v1/callbacks",
    responses((status = 101, description = "The WebSocket")),
)]
async fn serve(State(api): State<Api>, call: Call, socket: Upgrade) -> Response {
    socket.open(MAX_MESSAGE, async move |socket| talk(&api, &call, socket).await)
}

async fn talk(api: &Api, call: &Call, socket: WebSocket) {
    let (mut to_client, from_client) = socket.split();
    let heard = Arc::new(AtomicBool::new(true));
    let mut answers = api.serve_callbacks(call, messages(from_client, Arc::clone(&heard)));
    let mut alive = tokio::time::interval(SIGN_OF_LIFE);
    loop {
        let message = tokio::select! {
            answer = answers.next() => match answer {
                None => break,
                Some(Ok(message)) => text(&message),
                Some(Err(problem)) => {
                    let problem = Some(problem.wire(&call.request_id));
                    let last = v1::ServerCallback { problem, ..Default::default() };
                    let _ = to_client.send(text(&last)).await;
                    break;
                }
            },
            _ = alive.tick() => {
                if !heard.swap(false, Ordering::Relaxed) {
                    return;
                }
                Message::Ping(Bytes::new())
            }
        };
        if to_client.send(message).await.is_err() {
            return;
        }
    }
    let goodbye = CloseFrame { code: close_code::NORMAL, reason: "".into() };
    let goodbye = async {
        // To a client that said it first, closing sends the answer.
        let _ = to_client.send(Message::Close(Some(goodbye))).await;
        let _ = to_client.close().await;
    };
    let _ = tokio::time::timeout(GOODBYE, goodbye).await;
}

fn text(message: &v1::ServerCallback) -> Message {
    // Keys are text and nothing refuses to be written.
    let text = serde_json::to_string(message).expect("messages of the API have a JSON form");
    Message::Text(text.into())
}

/// What the client says, until it is gone.
fn messages<E>(
    from_client: impl Stream<Item = std::result::Result<Message, E>> + Send,
    heard: Arc<AtomicBool>,
) -> impl Stream<Item = Result<v1::ClientCallback>> + Send
where
    E: std::error::Error + Send,
{
    let said = from_client
        .take_while(|message| std::future::ready(!matches!(message, Ok(Message::Close(_)))));
    said.filter_map(move |message| {
        heard.store(true, Ordering::Relaxed);
        std::future::ready(match message {
            Ok(Message::Text(text)) => Some(read(&text)),
            Ok(Message::Binary(_)) => {
                Some(Err(Problem::invalid("the message is not text").with_remedy("send JSON")))
            }
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_)) => None,
            Err(error) => {
                Some(Err(Problem::new(Code::Interrupted, "the stream broke off").caused_by(&error)))
            }
        })
    })
}

fn read(text: &str) -> Result<v1::ClientCallback> {
    serde_json::from_str(text).map_err(|error| {
        Problem::invalid("the message cannot be used")
            .caused_by(&error)
            .with_remedy("see /docs for the messages that are understood")
    })
}
