//! A process over a WebSocket: its output from any offset on, and its input.
//!
//! To the client: binary messages with output (one byte for the channel, 1 or 2; eight bytes, big-endian, for the
//! offset; then the data), and text messages with one JSON object each: `{"started": …}`, `{"ended": …}`,
//! `{"problem": …}`. From the client: binary messages are input; text messages are [`Order`]s. Input waits for the
//! process to read it, and so does everything behind it. Closing the socket detaches and ends nothing.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::{CloseFrame, Message, WebSocket, close_code};
use axum::response::Response;
use belljar_api::v1;
use belljar_codes::Code;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::{Sink, SinkExt, Stream, StreamExt};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Path, Query};
use super::offsets::Position;
use super::upgrade::Upgrade;
use crate::api::{Answers, Api};
use crate::call::Call;
use crate::limit::Admitted;
use crate::patience::FIRST_WORD;
use crate::problem::{Problem, Result};

/// The largest message that is taken.
const MAX_MESSAGE: usize = 1 << 20;
/// Messages of input that wait for the process.
const WAITING: usize = 8;
/// What waits when the client goes has so long to be read by the process.
const LEFT_BEHIND: Duration = Duration::from_secs(30);
/// How often a silent client is asked whether it is still there.
const SIGN_OF_LIFE: Duration = Duration::from_secs(30);
/// A client that was told goodbye has so long to say it too.
const GOODBYE: Duration = Duration::from_secs(5);

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(attach)).routes(routes!(shell))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AttachQuery {
    /// Where to begin: one offset, or `STDOUT,STDERR`. Absent: the oldest that is kept.
    since: Option<String>,
}

/// Attaches to a process over a WebSocket.
///
/// Output comes as binary messages: one byte for the channel (1 standard output, 2 standard error), eight bytes,
/// big-endian, for the offset, then the data. `{"ended": PROCESS}` comes as text when the process has ended, and
/// `{"problem": PROBLEM}` when something fails. Binary messages to the server are input; text messages are
/// `{"resize": {"rows": R, "columns": C}}`, `{"signal": N}` and `{"close": true}`. Closing the socket ends nothing.
#[utoipa::path(
    get, path = "/v1/processes/{process}/attach", params(AttachQuery),
    responses((status = 101, description = "The WebSocket")),
)]
async fn attach(
    State(api): State<Api>,
    call: Call,
    Path(process_id): Path<String>,
    Query(query): Query<AttachQuery>,
    socket: Upgrade,
) -> Result<Response> {
    let since = query.since.map(|text| Position::parse(&text)).transpose()?.unwrap_or_default();
    let request = v1::FollowLogRequest {
        process_id: process_id.clone(),
        since: Some(since.offsets()),
        channels: Vec::new(),
        follow: true,
    };
    let output = api.follow_log(&call, request).await?;
    let attached = Attached { api, call, process_id, admitted: socket.admitted() };
    Ok(socket.open(MAX_MESSAGE, async move |mut socket| attached.talk(&mut socket, output).await))
}

/// Starts a command and attaches to it over a WebSocket.
///
/// The first message to the server is text: the command as JSON, as `command` of `exec` has it. `{"started": PROCESS}`
/// answers it; from there on as `attach`.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/shell",
    responses((status = 101, description = "The WebSocket")),
)]
async fn shell(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    socket: Upgrade,
) -> Result<Response> {
    // What does not exist is told before the protocol changes.
    api.get_sandbox(&call, v1::GetSandboxRequest { sandbox: sandbox.clone() }).await?;
    let admitted = socket.admitted();
    Ok(socket.open(MAX_MESSAGE, async move |mut socket: WebSocket| {
        if let Err(problem) = run_shell(&api, &call, sandbox, &mut socket, admitted).await {
            let told = Told::Problem(Box::new(problem.wire(&call.request_id)));
            if socket.send(told.message()).await.is_ok() {
                say_goodbye(&mut socket).await;
            }
        }
    }))
}

async fn run_shell(
    api: &Api,
    call: &Call,
    sandbox: String,
    socket: &mut WebSocket,
    admitted: Option<Arc<Admitted>>,
) -> Result<()> {
    let first = tokio::time::timeout(FIRST_WORD, first_command(socket)).await;
    let first = first.unwrap_or_else(|_| {
        Err(Problem::new(Code::RequestTimedOut, "no command came")
            .with_remedy("send it as JSON as soon as the connection is open"))
    });
    let Some(command) = first? else { return Ok(()) };
    api.still_let_in(call).await?;
    let request = v1::ExecStreamRequest { sandbox, command: Some(command), idempotency_key: None };
    let mut output = api.exec_stream(call, request).await?;
    let first = output.next().await.transpose()?;
    let Some(process) = first.and_then(|first| first.started) else { return Ok(()) };
    if socket.send(Told::Started(&process).message()).await.is_ok() {
        let (api, call) = (api.clone(), call.clone());
        let process_id = process.process_id;
        Attached { api, call, process_id, admitted }.talk(socket, output).await;
    }
    Ok(())
}

/// What the client wants to run; `None` where it went away.
async fn first_command(socket: &mut WebSocket) -> Result<Option<v1::Command>> {
    loop {
        match socket.recv().await {
            Some(Ok(Message::Text(text))) => return read(&text).map(Some),
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Binary(_))) => {
                return Err(Problem::invalid("the first message is not text")
                    .with_remedy("send the command as JSON first"));
            }
            None | Some(Err(_) | Ok(Message::Close(_))) => return Ok(None),
        }
    }
}

/// What a client wants, beside input.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "snake_case")]
enum Order {
    Resize(v1::Terminal),
    Signal(i32),
    /// No more input comes.
    Close(bool),
}

/// What a client is told, beside output.
#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
enum Told<'a> {
    Started(&'a v1::Process),
    Ended(&'a v1::Process),
    Problem(Box<v1::Problem>),
}

impl Told<'_> {
    fn message(&self) -> Message {
        // Keys are text and nothing refuses to be written.
        let text = serde_json::to_string(self).expect("messages of the API have a JSON form");
        Message::Text(text.into())
    }
}

fn read<T: serde::de::DeserializeOwned>(text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| {
        Problem::invalid("the message cannot be used")
            .caused_by(&error)
            .with_remedy("see /docs for the messages that are understood")
    })
}

/// One client at one process.
struct Attached {
    api: Api,
    call: Call,
    process_id: String,
    /// Under way as long as anything is left of it.
    admitted: Option<Arc<Admitted>>,
}

/// The way of a client's input to its process.
struct Input {
    sender: mpsc::Sender<Result<v1::WriteInputRequest>>,
    /// Tells that the client is gone.
    _client: DropGuard,
}

impl Attached {
    /// Until the process has ended or the client is gone.
    async fn talk(&self, socket: &mut WebSocket, output: Answers<v1::ProcessOutput>) {
        let all_told = {
            let (mut to_client, mut from_client) = socket.split();
            let (problems, told) = mpsc::channel(WAITING);
            tokio::select! {
                () = self.listen(&mut from_client, problems) => false,
                () = self.tell(&mut to_client, output, told) => true,
            }
        };
        if all_told {
            say_goodbye(socket).await;
        }
    }

    /// Returns when there is nothing more to tell, or nobody to tell it.
    async fn tell(
        &self,
        to_client: &mut (impl Sink<Message> + Unpin),
        mut output: Answers<v1::ProcessOutput>,
        mut problems: mpsc::Receiver<Problem>,
    ) {
        let mut alive = tokio::time::interval(SIGN_OF_LIFE);
        let mut last = false;
        while !last {
            let message = tokio::select! {
                piece = output.next() => match piece {
                    None => return,
                    Some(Ok(piece)) => {
                        last = piece.ended.is_some();
                        shown(&piece)
                    }
                    Some(Err(problem)) => {
                        last = true;
                        self.shown(&problem)
                    }
                },
                Some(problem) = problems.recv() => self.shown(&problem),
                _ = alive.tick() => Message::Ping(Bytes::new()),
            };
            if to_client.send(message).await.is_err() {
                return;
            }
        }
    }

    /// Returns when the client is gone.
    async fn listen<E>(
        &self,
        from_client: &mut (impl Stream<Item = std::result::Result<Message, E>> + Unpin),
        problems: mpsc::Sender<Problem>,
    ) {
        let mut input = None;
        while let Some(Ok(message)) = from_client.next().await {
            let done = match message {
                Message::Binary(data) => {
                    let piece = v1::WriteInputRequest { data, ..v1::WriteInputRequest::default() };
                    self.write(&mut input, piece, &problems).await
                }
                Message::Text(text) => match read(&text) {
                    Ok(Order::Close(close)) => {
                        let piece =
                            v1::WriteInputRequest { close, ..v1::WriteInputRequest::default() };
                        self.write(&mut input, piece, &problems).await
                    }
                    Ok(Order::Signal(signal)) => self.signal(signal).await,
                    Ok(Order::Resize(size)) => self.resize(size).await,
                    Err(problem) => Err(problem),
                },
                Message::Close(_) => return,
                Message::Ping(_) | Message::Pong(_) => Ok(()),
            };
            if let Err(problem) = done
                && problems.send(problem).await.is_err()
            {
                return;
            }
        }
    }

    /// Input is written by a task of its own, which outlives the client until all of it is delivered, or for a while.
    async fn write(
        &self,
        input: &mut Option<Input>,
        piece: v1::WriteInputRequest,
        problems: &mpsc::Sender<Problem>,
    ) -> Result<()> {
        let input = input.get_or_insert_with(|| {
            let (sender, pieces) = mpsc::channel(WAITING);
            let (api, call, problems) = (self.api.clone(), self.call.clone(), problems.clone());
            let (gone, admitted) = (CancellationToken::new(), self.admitted.clone());
            let client = gone.clone().drop_guard();
            let process_id = self.process_id.clone();
            let first = v1::WriteInputRequest { process_id, ..v1::WriteInputRequest::default() };
            tokio::spawn(async move {
                let _admitted = admitted;
                let write = api.write_input(&call, first, ReceiverStream::new(pieces));
                if let Some(Err(problem)) = left_behind(write, gone).await {
                    let _ = problems.send(problem).await;
                }
            });
            Input { sender, _client: client }
        });
        // The task tells itself why it takes nothing more.
        let _ = input.sender.send(Ok(piece)).await;
        Ok(())
    }

    async fn signal(&self, signal: i32) -> Result<()> {
        self.api.ask_within(&self.call).await?;
        let request = v1::SignalProcessRequest { process_id: self.process_id.clone(), signal };
        self.api.signal_process(&self.call, request).await.map(drop)
    }

    async fn resize(&self, size: v1::Terminal) -> Result<()> {
        self.api.still_let_in(&self.call).await?;
        let process_id = self.process_id.clone();
        let request = v1::ResizeTerminalRequest { process_id, size: Some(size) };
        self.api.resize_terminal(&self.call, request).await.map(drop)
    }

    fn shown(&self, problem: &Problem) -> Message {
        Told::Problem(Box::new(problem.wire(&self.call.request_id))).message()
    }
}

/// The work's end, unless it takes too long after somebody has gone.
async fn left_behind<T>(work: impl Future<Output = T>, gone: CancellationToken) -> Option<T> {
    let too_long = async {
        gone.cancelled().await;
        tokio::time::sleep(LEFT_BEHIND).await;
    };
    tokio::select! {
        end = work => Some(end),
        () = too_long => None,
    }
}

/// Closes a conversation in which everything is said.
async fn say_goodbye(socket: &mut WebSocket) {
    let goodbye = CloseFrame { code: close_code::NORMAL, reason: "".into() };
    if socket.send(Message::Close(Some(goodbye))).await.is_ok() {
        let rest = async { while let Some(Ok(_)) = socket.recv().await {} };
        let _ = tokio::time::timeout(GOODBYE, rest).await;
    }
}

fn shown(piece: &v1::ProcessOutput) -> Message {
    if let Some(process) = &piece.ended {
        return Told::Ended(process).message();
    }
    let mut frame = BytesMut::with_capacity(9 + piece.data.len());
    frame.put_u8(if piece.channel() == v1::Channel::Stderr { 2 } else { 1 });
    frame.put_u64(piece.offset);
    frame.put_slice(&piece.data);
    Message::Binary(frame.freeze())
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_a_client_leaves_behind_has_an_end() {
        let begun = Instant::now();
        let gone = CancellationToken::new();
        let stays = left_behind(tokio::time::sleep(10 * LEFT_BEHIND), gone.clone());
        assert_eq!(stays.await, Some(()));
        assert_eq!(begun.elapsed(), 10 * LEFT_BEHIND);
        drop(gone.clone().drop_guard());
        let read = left_behind(tokio::time::sleep(LEFT_BEHIND / 2), gone.clone());
        assert_eq!(read.await, Some(()));
        let begun = Instant::now();
        assert_eq!(left_behind(std::future::pending::<()>(), gone).await, None);
        assert_eq!(begun.elapsed(), LEFT_BEHIND);
    }
}
