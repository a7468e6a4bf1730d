//! Commands: run, started, waited for, acted on.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belljar_api::v1;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Accept, IdempotencyKey, Json, LargeJson, Path, Pieces, Query};
use super::offsets::Position;
use super::stream::{Named, events};
use super::{Answer, Binary, Events, answer, same};
use crate::api::{Answers, Api};
use crate::call::Call;
use crate::problem::{Problem, Result};

/// The longest that one request waits; a client that wants to wait longer asks again.
const LONGEST_WAIT: f64 = 60.0;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(run))
        .routes(routes!(exec))
        .routes(routes!(start_process))
        .routes(routes!(list_processes))
        .routes(routes!(get_process))
        .routes(routes!(wait_process))
        .routes(routes!(cancel_process))
        .routes(routes!(signal_process))
        .routes(routes!(resize_terminal))
        .routes(routes!(write_input))
}

/// Runs a command in a session, from making the sandbox to the files it left.
///
/// Answers with the collected result, or, where the caller accepts `text/event-stream`, with `started`, `output` and
/// `ended` as they happen.
#[utoipa::path(
    post, path = "/v1/run", params(IdempotencyKey),
    request_body = v1::RunRequest,
    responses((status = 200, description = "How it began and ended", content(
        (v1::RunResponse = "application/json"), (Events = "text/event-stream"),
    ))),
)]
async fn run(
    State(api): State<Api>,
    call: Call,
    key: IdempotencyKey,
    accept: Accept,
    LargeJson(mut request): LargeJson<v1::RunRequest>,
) -> Result<Response> {
    request.idempotency_key = key.or(request.idempotency_key)?;
    request.collect |= !accept.events();
    let answers = api.run(&call, request).await?;
    if accept.events() {
        let mut position = Position::default();
        return Ok(events(call, answers, move |message: &v1::RunResponse| match message {
            v1::RunResponse { started: Some(_), .. } => Named { name: "started", id: None },
            v1::RunResponse { output: Some(output), .. } => position.name(output),
            _ => Named { name: "ended", id: None },
        }));
    }
    Ok(axum::Json(joined(answers).await?).into_response())
}

/// The messages of a run whose output was collected, as one.
async fn joined(mut answers: Answers<v1::RunResponse>) -> Result<v1::RunResponse> {
    let mut joined = v1::RunResponse::default();
    while let Some(message) = answers.next().await {
        let message = message?;
        joined.started = joined.started.or(message.started);
        joined.ended = message.ended.or(joined.ended);
    }
    Ok(joined)
}

/// Runs a command in a sandbox to its end.
///
/// Answers with its output, bounded (all of it is in the log), or, where the caller accepts `text/event-stream`, with
/// `started`, `output` and `ended` as they happen. The `id` of an output event is the position after it, which the log
/// takes as `since`.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/exec", params(IdempotencyKey),
    request_body = v1::ExecRequest,
    responses((status = 200, description = "How it ended", content(
        (v1::ExecResponse = "application/json"), (Events = "text/event-stream"),
    ))),
)]
async fn exec(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    key: IdempotencyKey,
    accept: Accept,
    LargeJson(mut request): LargeJson<v1::ExecRequest>,
) -> Result<Response> {
    request.sandbox = same("sandbox", sandbox, &request.sandbox)?;
    request.idempotency_key = key.or(request.idempotency_key)?;
    if accept.events() {
        let v1::ExecRequest { sandbox, command, idempotency_key, .. } = request;
        let request = v1::ExecStreamRequest { sandbox, command, idempotency_key };
        let answers = api.exec_stream(&call, request).await?;
        let mut position = Position::default();
        return Ok(events(call, answers, move |output| position.name(output)));
    }
    Ok(answer(api.exec(&call, request).await)?.into_response())
}

/// Starts a command and answers at once.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/processes", params(IdempotencyKey),
    request_body = v1::StartProcessRequest,
    responses((status = 200, description = "The process", body = v1::Process)),
)]
async fn start_process(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    key: IdempotencyKey,
    LargeJson(mut request): LargeJson<v1::StartProcessRequest>,
) -> Result<Answer<v1::Process>> {
    request.sandbox = same("sandbox", sandbox, &request.sandbox)?;
    request.idempotency_key = key.or(request.idempotency_key)?;
    answer(api.start_process(&call, request).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Only of this sandbox, by name or id.
    sandbox: Option<String>,
    /// Absent: all.
    #[serde(default)]
    #[param(required = false)]
    status: Vec<v1::ProcessStatus>,
    /// At most 1000; absent: 100.
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
}

/// Lists processes, newest first, page by page.
#[utoipa::path(
    get, path = "/v1/processes", params(ListQuery),
    responses((status = 200, description = "A page", body = v1::ListProcessesResponse)),
)]
async fn list_processes(
    State(api): State<Api>,
    call: Call,
    Query(query): Query<ListQuery>,
) -> Result<Answer<v1::ListProcessesResponse>> {
    let request = v1::ListProcessesRequest {
        sandbox: query.sandbox,
        statuses: query.status.into_iter().map(Into::into).collect(),
        page_size: query.page_size,
        page_token: query.page_token,
    };
    answer(api.list_processes(&call, request).await)
}

/// Looks at a process.
#[utoipa::path(
    get, path = "/v1/processes/{process}",
    responses((status = 200, description = "The process", body = v1::Process)),
)]
async fn get_process(
    State(api): State<Api>,
    call: Call,
    Path(process_id): Path<String>,
) -> Result<Answer<v1::Process>> {
    answer(api.get_process(&call, v1::GetProcessRequest { process_id }).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WaitQuery {
    /// At most 60; absent: 60.
    #[param(minimum = 0, maximum = 60)]
    timeout_secs: Option<f64>,
}

/// Waits for the end of a process, up to a time, and answers with the process as it is by then.
#[utoipa::path(
    get, path = "/v1/processes/{process}/wait", params(WaitQuery),
    responses((status = 200, description = "The process", body = v1::Process)),
)]
async fn wait_process(
    State(api): State<Api>,
    call: Call,
    Path(process_id): Path<String>,
    Query(query): Query<WaitQuery>,
) -> Result<Answer<v1::Process>> {
    let timeout = query.timeout_secs.unwrap_or(LONGEST_WAIT);
    if timeout > LONGEST_WAIT {
        return Err(Problem::invalid(format!("`timeout_secs` is {timeout}"))
            .with_remedy(format!("wait at most {LONGEST_WAIT} seconds, and ask again")));
    }
    let request = v1::WaitProcessRequest { process_id, timeout_secs: Some(timeout) };
    answer(api.wait_process(&call, request).await)
}

/// Sends TERM to a process group, and KILL to the tree after the grace time.
#[utoipa::path(
    post, path = "/v1/processes/{process}/cancel",
    request_body = v1::CancelProcessRequest,
    responses((status = 200, description = "The process as it ended", body = v1::Process)),
)]
async fn cancel_process(
    State(api): State<Api>,
    call: Call,
    Path(process): Path<String>,
    Json(mut request): Json<v1::CancelProcessRequest>,
) -> Result<Answer<v1::Process>> {
    request.process_id = same("process_id", process, &request.process_id)?;
    answer(api.cancel_process(&call, request).await)
}

/// Sends a signal to a process.
#[utoipa::path(
    post, path = "/v1/processes/{process}/signal",
    request_body = v1::SignalProcessRequest,
    responses((status = 200, description = "It was sent", body = v1::SignalProcessResponse)),
)]
async fn signal_process(
    State(api): State<Api>,
    call: Call,
    Path(process): Path<String>,
    Json(mut request): Json<v1::SignalProcessRequest>,
) -> Result<Answer<v1::SignalProcessResponse>> {
    request.process_id = same("process_id", process, &request.process_id)?;
    answer(api.signal_process(&call, request).await)
}

/// Changes the size of a process's terminal.
#[utoipa::path(
    post, path = "/v1/processes/{process}/resize",
    request_body = v1::ResizeTerminalRequest,
    responses((status = 200, description = "It was changed", body = v1::ResizeTerminalResponse)),
)]
async fn resize_terminal(
    State(api): State<Api>,
    call: Call,
    Path(process): Path<String>,
    Json(mut request): Json<v1::ResizeTerminalRequest>,
) -> Result<Answer<v1::ResizeTerminalResponse>> {
    request.process_id = same("process_id", process, &request.process_id)?;
    answer(api.resize_terminal(&call, request).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct InputQuery {
    /// No more input comes after this.
    #[serde(default)]
    #[param(required = false)]
    close: bool,
}

/// Writes the body to a process's standard input, as fast as the process reads.
#[utoipa::path(
    post, path = "/v1/processes/{process}/input", params(InputQuery),
    request_body(content = Binary, content_type = "application/octet-stream"),
    responses((status = 200, description = "What was written", body = v1::WriteInputResponse)),
)]
async fn write_input(
    State(api): State<Api>,
    call: Call,
    Path(process_id): Path<String>,
    Query(query): Query<InputQuery>,
    body: Pieces,
) -> Result<Answer<v1::WriteInputResponse>> {
    let first = v1::WriteInputRequest { process_id, ..v1::WriteInputRequest::default() };
    let piece = |data| v1::WriteInputRequest { data, ..v1::WriteInputRequest::default() };
    let last = v1::WriteInputRequest { close: true, ..v1::WriteInputRequest::default() };
    let last = stream::iter(query.close.then_some(Ok(last)));
    let rest = body.stream().map(move |data| data.map(piece)).chain(last);
    answer(api.write_input(&call, first, rest).await)
}
