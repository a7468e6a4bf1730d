//! What processes wrote: as plain bytes, page by page, or as it comes.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belljar_api::v1;
use futures_util::{StreamExt, TryStreamExt};
use http::HeaderValue;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Accept, LastEvent, Path, Query};
use super::offsets::Position;
use super::stream::{bytes, events};
use super::{Binary, Events};
use crate::api::{Answers, Api};
use crate::call::Call;
use crate::problem::Result;

/// What one page brings at most, give or take one piece.
const PAGE: usize = 1 << 20;

/// Where the first byte of a plain answer lies in its channel.
const OFFSET: &str = "belljar-offset";

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(follow_log))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LogQuery {
    /// Only this channel; and, unless events are asked for, as plain bytes.
    channel: Option<v1::Channel>,
    /// Where to begin: one offset, or `STDOUT,STDERR`.
    since: Option<String>,
    /// Go on until the process ends. Not for pages.
    #[serde(default)]
    #[param(required = false)]
    follow: bool,
}

/// A part of a process's log.
#[derive(Serialize, ToSchema)]
struct LogPage {
    output: Vec<v1::ProcessOutput>,
    /// Where the next page begins: to be given as `since`.
    next: String,
    /// There is more by now.
    more: bool,
}

/// Reads a process's log from any offset that is still kept.
///
/// With `channel`, as the plain bytes that the process wrote; the header `belljar-offset` tells where they begin. Without, as
/// pages of JSON. Where the caller accepts `text/event-stream`, as events whose `id` is the position after them;
/// `last-event-id` continues from there.
#[utoipa::path(
    get, path = "/v1/processes/{process}/log", params(LogQuery),
    responses((status = 200, description = "Output", content(
        (LogPage = "application/json"),
        (Binary = "application/octet-stream"),
        (Events = "text/event-stream"),
    ))),
)]
async fn follow_log(
    State(api): State<Api>,
    call: Call,
    Path(process_id): Path<String>,
    Query(query): Query<LogQuery>,
    accept: Accept,
    LastEvent(last): LastEvent,
) -> Result<Response> {
    let since = last.or(query.since).map(|text| Position::parse(&text)).transpose()?;
    let mut position = since.unwrap_or_default();
    let channel = query.channel.filter(|channel| *channel != v1::Channel::Unspecified);
    let plain = channel.is_some() && !accept.events();
    let request = v1::FollowLogRequest {
        process_id: process_id.clone(),
        since: Some(position.offsets()),
        channels: channel.into_iter().map(Into::into).collect(),
        follow: query.follow && (plain || accept.events()),
    };
    let answers = api.follow_log(&call, request).await?;
    if accept.events() {
        return Ok(events(call, answers, move |output| position.name(output)));
    }
    let Some(channel) = channel else {
        return Ok(axum::Json(page(answers, position).await?).into_response());
    };
    let process = api.get_process(&call, v1::GetProcessRequest { process_id }).await?;
    let kept = process.log_start.unwrap_or_default();
    let begin = match channel {
        v1::Channel::Stderr => position.offsets().stderr.max(kept.stderr),
        _ => position.offsets().stdout.max(kept.stdout),
    };
    let mut response = bytes(answers.map_ok(|output| output.data));
    response.headers_mut().insert(OFFSET, HeaderValue::from(begin));
    Ok(response)
}

async fn page(mut answers: Answers<v1::ProcessOutput>, mut position: Position) -> Result<LogPage> {
    let (mut output, mut size, mut more) = (Vec::new(), 0, false);
    while let Some(piece) = answers.next().await {
        if size >= PAGE {
            more = true;
            break;
        }
        let piece = piece?;
        size += piece.data.len().max(64);
        position.pass(&piece);
        output.push(piece);
    }
    Ok(LogPage { output, next: position.to_string(), more })
}
