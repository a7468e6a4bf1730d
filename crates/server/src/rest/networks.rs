//! The networks of sandboxes.

use axum::extract::State;
use axum::response::Response;
use belljar_api::v1;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Json, Path, Query};
use super::stream::{Named, begun, events, lines};
use super::{Answer, Events, Lines, answer, same};
use crate::api::Api;
use crate::call::Call;
use crate::problem::Result;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(get_network, change_network))
        .routes(routes!(read_network_log))
        .routes(routes!(list_approvals))
        .routes(routes!(answer_approval))
}

/// Tells what a sandbox may reach.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/network",
    responses((status = 200, description = "Its network", body = v1::SandboxNetwork)),
)]
async fn get_network(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
) -> Result<Answer<v1::SandboxNetwork>> {
    answer(api.get_network(&call, v1::GetNetworkRequest { sandbox }).await)
}

/// Changes what a sandbox may reach. Connections that are no longer allowed are cut.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/network",
    request_body = v1::ChangeNetworkRequest,
    responses((status = 200, description = "Its network", body = v1::SandboxNetwork)),
)]
async fn change_network(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Json(mut request): Json<v1::ChangeNetworkRequest>,
) -> Result<Answer<v1::SandboxNetwork>> {
    request.sandbox = same("sandbox", sandbox, &request.sandbox)?;
    answer(api.change_network(&call, request).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct LogQuery {
    /// Only what was denied.
    #[serde(default)]
    #[param(required = false)]
    denied: bool,
    /// Only the last so many.
    last: Option<u32>,
    /// Then new ones as they come, without end, as server-sent events.
    #[serde(default)]
    #[param(required = false)]
    follow: bool,
}

/// Tells what a sandbox wanted to reach and what came of it, a JSON value per line, oldest first.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/network/log", params(LogQuery),
    responses((status = 200, description = "`NetworkDecision` values", content(
        (Lines = "application/x-ndjson"),
        (Events = "text/event-stream"),
    ))),
)]
async fn read_network_log(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Query(query): Query<LogQuery>,
) -> Result<Response> {
    let LogQuery { denied, last, follow } = query;
    let request = v1::ReadNetworkLogRequest { sandbox, denied, last, follow };
    let decisions = api.read_network_log(&call, request).await?;
    if follow {
        return Ok(events(call, decisions, |_| Named { name: "decision", id: None }));
    }
    Ok(lines(begun(decisions).await?))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ApprovalQuery {
    /// Only of this sandbox, by name or id.
    sandbox: Option<String>,
}

/// Lists connections and requests that wait for somebody to allow them.
#[utoipa::path(
    get, path = "/v1/approvals", params(ApprovalQuery),
    responses((status = 200, description = "All of them", body = v1::ListApprovalsResponse)),
)]
async fn list_approvals(
    State(api): State<Api>,
    call: Call,
    Query(query): Query<ApprovalQuery>,
) -> Result<Answer<v1::ListApprovalsResponse>> {
    answer(api.list_approvals(&call, v1::ListApprovalsRequest { sandbox: query.sandbox }).await)
}

/// Answers for one that waits.
#[utoipa::path(
    post, path = "/v1/approvals/{approval}",
    request_body = v1::AnswerApprovalRequest,
    responses((status = 200, description = "What was answered for", body = v1::Approval)),
)]
async fn answer_approval(
    State(api): State<Api>,
    call: Call,
    Path(approval): Path<String>,
    Json(mut request): Json<v1::AnswerApprovalRequest>,
) -> Result<Answer<v1::Approval>> {
    request.approval_id = same("approval_id", approval, &request.approval_id)?;
    answer(api.answer_approval(&call, request).await)
}
