//! The server itself, and the small lists.

use axum::extract::State;
use axum::response::Response;
use belljar_api::v1;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Json, Query};
use super::stream::{begun, lines};
use super::{Answer, Lines, answer};
use crate::api::Api;
use crate::call::Call;
use crate::problem::Result;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(get_server))
        .routes(routes!(stop_server))
        .routes(routes!(get_caller))
        .routes(routes!(probe_backends))
        .routes(routes!(find_leaks))
        .routes(routes!(list_templates))
        .routes(routes!(fetch_template))
        .routes(routes!(list_profiles))
}

/// Looks at the server.
#[utoipa::path(
    get, path = "/v1/server",
    responses((status = 200, description = "The server", body = v1::Server)),
)]
async fn get_server(State(api): State<Api>, call: Call) -> Result<Answer<v1::Server>> {
    answer(api.get_server(&call, v1::GetServerRequest {}).await)
}

/// Drains and stops the server. Sandboxes stay.
#[utoipa::path(
    post, path = "/v1/server/stop",
    responses((status = 200, description = "It stops", body = v1::StopServerResponse)),
)]
async fn stop_server(State(api): State<Api>, call: Call) -> Result<Answer<v1::StopServerResponse>> {
    answer(api.stop_server(&call, v1::StopServerRequest {}).await)
}

/// Tells who the caller is to the server.
#[utoipa::path(
    get, path = "/v1/caller",
    responses((status = 200, description = "The caller", body = v1::Caller)),
)]
async fn get_caller(State(api): State<Api>, call: Call) -> Result<Answer<v1::Caller>> {
    answer(api.get_caller(&call, v1::GetCallerRequest {}).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ProbeQuery {
    /// Absent: all.
    backend: Option<String>,
    /// Try anew what is known already.
    #[serde(default)]
    refresh: bool,
}

/// Tries backends by running a tiny sandbox on each.
#[utoipa::path(
    get, path = "/v1/probe", params(ProbeQuery),
    responses((status = 200, description = "What works", body = v1::ProbeBackendsResponse)),
)]
async fn probe_backends(
    State(api): State<Api>,
    call: Call,
    Query(query): Query<ProbeQuery>,
) -> Result<Answer<v1::ProbeBackendsResponse>> {
    let request = v1::ProbeBackendsRequest { backend: query.backend, refresh: query.refresh };
    answer(api.probe_backends(&call, request).await)
}

/// Looks for what no sandbox owns any more, and removes it if asked to.
#[utoipa::path(
    post, path = "/v1/leaks",
    request_body = v1::FindLeaksRequest,
    responses((status = 200, description = "What was found", body = v1::FindLeaksResponse)),
)]
async fn find_leaks(
    State(api): State<Api>,
    call: Call,
    Json(request): Json<v1::FindLeaksRequest>,
) -> Result<Answer<v1::FindLeaksResponse>> {
    answer(api.find_leaks(&call, request).await)
}

/// Lists templates: what sandboxes start from.
#[utoipa::path(
    get, path = "/v1/templates",
    responses((status = 200, description = "All of them", body = v1::ListTemplatesResponse)),
)]
async fn list_templates(
    State(api): State<Api>,
    call: Call,
) -> Result<Answer<v1::ListTemplatesResponse>> {
    answer(api.list_templates(&call, v1::ListTemplatesRequest {}).await)
}

/// Fetches an image that a template names, and tells how far that is, a JSON value per line.
#[utoipa::path(
    post, path = "/v1/templates/fetch",
    request_body = v1::FetchTemplateRequest,
    responses((status = 200, description = "`FetchStep` values", content(
        (Lines = "application/x-ndjson"),
    ))),
)]
async fn fetch_template(
    State(api): State<Api>,
    call: Call,
    Json(request): Json<v1::FetchTemplateRequest>,
) -> Result<Response> {
    Ok(lines(begun(api.fetch_template(&call, request).await?).await?))
}

/// Lists named network policies.
#[utoipa::path(
    get, path = "/v1/profiles",
    responses((status = 200, description = "All of them", body = v1::ListProfilesResponse)),
)]
async fn list_profiles(
    State(api): State<Api>,
    call: Call,
) -> Result<Answer<v1::ListProfilesResponse>> {
    answer(api.list_profiles(&call, v1::ListProfilesRequest {}).await)
}
