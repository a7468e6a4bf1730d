//! Sandboxes, their layers, and what happens to them.

use axum::extract::State;
use axum::response::Response;
use belljar_api::v1;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Accept, IdempotencyKey, Json, LargeJson, LastEvent, Path, Query, pairs};
use super::stream::{Named, events, gather};
use super::{Answer, Events, answer, same};
use crate::api::Api;
use crate::call::Call;
use crate::problem::{Problem, Result};

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create_sandbox, list_sandboxes))
        .routes(routes!(get_sandbox, destroy_sandbox))
        .routes(routes!(extend_sandbox))
        .routes(routes!(pause_sandbox))
        .routes(routes!(resume_sandbox))
        .routes(routes!(diff_layer))
        .routes(routes!(apply_layer))
        .routes(routes!(discard_layer))
        .routes(routes!(explain_sandbox))
        .routes(routes!(watch_events))
}

/// Creates a sandbox.
///
/// With `get_or_create` and a name, the sandbox of that name if there is one.
#[utoipa::path(
    post, path = "/v1/sandboxes", params(IdempotencyKey),
    request_body = v1::CreateSandboxRequest,
    responses((status = 200, description = "The sandbox", body = v1::Sandbox)),
)]
async fn create_sandbox(
    State(api): State<Api>,
    call: Call,
    key: IdempotencyKey,
    LargeJson(mut request): LargeJson<v1::CreateSandboxRequest>,
) -> Result<Answer<v1::Sandbox>> {
    request.idempotency_key = key.or(request.idempotency_key)?;
    answer(api.create_sandbox(&call, request).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// `KEY=VALUE`; all must match.
    #[serde(default)]
    #[param(required = false)]
    label: Vec<String>,
    /// `KEY=VALUE`; all must match.
    #[serde(default)]
    #[param(required = false)]
    metadata: Vec<String>,
    /// Absent: those that have not ended.
    #[serde(default)]
    #[param(required = false)]
    state: Vec<v1::SandboxState>,
    name_prefix: Option<String>,
    /// At most 1000; absent: 100.
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
    /// For administrators: only this tenant's.
    tenant: Option<String>,
}

/// Lists sandboxes, oldest first, page by page.
#[utoipa::path(
    get, path = "/v1/sandboxes", params(ListQuery),
    responses((status = 200, description = "A page", body = v1::ListSandboxesResponse)),
)]
async fn list_sandboxes(
    State(api): State<Api>,
    call: Call,
    Query(query): Query<ListQuery>,
) -> Result<Answer<v1::ListSandboxesResponse>> {
    let request = v1::ListSandboxesRequest {
        labels: pairs("label", query.label)?,
        metadata: pairs("metadata", query.metadata)?,
        states: query.state.into_iter().map(Into::into).collect(),
        name_prefix: query.name_prefix,
        page_size: query.page_size,
        page_token: query.page_token,
        tenant: query.tenant,
    };
    answer(api.list_sandboxes(&call, request).await)
}

/// Looks at a sandbox.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}",
    responses((status = 200, description = "The sandbox", body = v1::Sandbox)),
)]
async fn get_sandbox(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
) -> Result<Answer<v1::Sandbox>> {
    answer(api.get_sandbox(&call, v1::GetSandboxRequest { sandbox }).await)
}

/// Destroys a sandbox, from any state.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}",
    responses((status = 200, description = "It is gone", body = v1::DestroySandboxResponse)),
)]
async fn destroy_sandbox(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
) -> Result<Answer<v1::DestroySandboxResponse>> {
    answer(api.destroy_sandbox(&call, v1::DestroySandboxRequest { sandbox }).await)
}

/// Gives a sandbox more time, or less.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/extend",
    request_body = v1::ExtendSandboxRequest,
    responses((status = 200, description = "The sandbox", body = v1::Sandbox)),
)]
async fn extend_sandbox(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Json(mut request): Json<v1::ExtendSandboxRequest>,
) -> Result<Answer<v1::Sandbox>> {
    request.sandbox = same("sandbox", sandbox, &request.sandbox)?;
    answer(api.extend_sandbox(&call, request).await)
}

/// Stops everything in a sandbox where it stands.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/pause",
    responses((status = 200, description = "The sandbox", body = v1::Sandbox)),
)]
async fn pause_sandbox(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
) -> Result<Answer<v1::Sandbox>> {
    answer(api.pause_sandbox(&call, v1::PauseSandboxRequest { sandbox }).await)
}

/// Lets a paused sandbox go on.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/resume",
    responses((status = 200, description = "The sandbox", body = v1::Sandbox)),
)]
async fn resume_sandbox(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
) -> Result<Answer<v1::Sandbox>> {
    answer(api.resume_sandbox(&call, v1::ResumeSandboxRequest { sandbox }).await)
}

/// Lists the changes in the layer over a sandbox's workspace.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/layer",
    responses((status = 200, description = "The changes", body = v1::DiffLayerResponse)),
)]
async fn diff_layer(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
) -> Result<Answer<v1::DiffLayerResponse>> {
    answer(api.diff_layer(&call, v1::DiffLayerRequest { sandbox }).await)
}

/// Writes a layer's changes into the directory below it.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/layer/apply",
    responses((status = 200, description = "What was applied", body = v1::ApplyLayerResponse)),
)]
async fn apply_layer(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
) -> Result<Answer<v1::ApplyLayerResponse>> {
    answer(api.apply_layer(&call, v1::ApplyLayerRequest { sandbox }).await)
}

/// Drops a layer's changes.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/layer/discard",
    responses((status = 200, description = "What was dropped", body = v1::DiscardLayerResponse)),
)]
async fn discard_layer(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
) -> Result<Answer<v1::DiscardLayerResponse>> {
    answer(api.discard_layer(&call, v1::DiscardLayerRequest { sandbox }).await)
}

/// Tells what would be created, why, and what would hold each rule.
#[utoipa::path(
    post, path = "/v1/explain",
    request_body = v1::ExplainSandboxRequest,
    responses((status = 200, description = "The explanation", body = v1::Explanation)),
)]
async fn explain_sandbox(
    State(api): State<Api>,
    call: Call,
    Json(request): Json<v1::ExplainSandboxRequest>,
) -> Result<Answer<v1::Explanation>> {
    answer(api.explain_sandbox(&call, request).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct EventsQuery {
    /// Events after this number. Absent: from now on; without following, from the oldest that is kept.
    since: Option<u64>,
    /// Only of this sandbox, by name or id.
    sandbox: Option<String>,
    /// Absent: all kinds.
    #[serde(default)]
    #[param(required = false)]
    kind: Vec<v1::EventKind>,
}

/// Events of sandboxes and processes.
///
/// As server-sent events where the caller accepts `text/event-stream`: they go on as things happen, `id` is the event's
/// number, and `last-event-id` continues after it. Otherwise the next 1000 events that exist by now, as JSON.
#[utoipa::path(
    get, path = "/v1/events", params(EventsQuery),
    responses((status = 200, description = "The events", content(
        (EventPage = "application/json"), (Events = "text/event-stream"),
    ))),
)]
async fn watch_events(
    State(api): State<Api>,
    call: Call,
    Query(query): Query<EventsQuery>,
    accept: Accept,
    LastEvent(last): LastEvent,
) -> Result<Response> {
    use axum::response::IntoResponse;
    let last = last.map(|id| id.parse().map_err(|_| unknown_event(&id))).transpose()?;
    let request = v1::WatchEventsRequest {
        since: last.or(query.since),
        sandbox: query.sandbox,
        kinds: query.kind.into_iter().map(Into::into).collect(),
        once: !accept.events(),
    };
    let answers = api.watch_events(&call, request).await?;
    if !accept.events() {
        let (events, more) = gather(answers, MOST_EVENTS).await?;
        return Ok(axum::Json(EventPage { events, more }).into_response());
    }
    let named = |event: &v1::Event| Named { name: "event", id: Some(event.seq.to_string()) };
    Ok(events(call, answers, named))
}

/// What one page of events has at most.
const MOST_EVENTS: usize = 1000;

/// Events in the order in which they happened.
#[derive(serde::Serialize, utoipa::ToSchema)]
struct EventPage {
    events: Vec<v1::Event>,
    /// There are more by now: ask with `since` as the last one's `seq`.
    more: bool,
}

fn unknown_event(id: &str) -> Problem {
    Problem::invalid(format!("`last-event-id` is `{}`", belljar_policy::shown(id)))
        .with_remedy("send the `id` of an event")
}
