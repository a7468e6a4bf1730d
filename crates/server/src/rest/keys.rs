//! Who may use the server, and who did.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belljar_api::v1;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Accept, Json, Path, Query, time};
use super::stream::{Named, events, gather, lines};
use super::{Answer, Events, Lines, answer};
use crate::api::Api;
use crate::call::Call;
use crate::problem::Result;

/// What one JSON answer brings at most; lines and events have no such bound.
const MOST_RECORDS: u32 = 10_000;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create_key, list_keys))
        .routes(routes!(revoke_key))
        .routes(routes!(query_audit))
}

/// Makes an API key. Its secret is in this answer and nowhere else.
#[utoipa::path(
    post, path = "/v1/keys",
    request_body = v1::CreateKeyRequest,
    responses((status = 200, description = "The key", body = v1::CreateKeyResponse)),
)]
async fn create_key(
    State(api): State<Api>,
    call: Call,
    Json(request): Json<v1::CreateKeyRequest>,
) -> Result<Answer<v1::CreateKeyResponse>> {
    answer(api.create_key(&call, request).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct KeysQuery {
    /// Only this tenant's.
    tenant: Option<String>,
}

/// Lists API keys, without their secrets.
#[utoipa::path(
    get, path = "/v1/keys", params(KeysQuery),
    responses((status = 200, description = "All of them", body = v1::ListKeysResponse)),
)]
async fn list_keys(
    State(api): State<Api>,
    call: Call,
    Query(query): Query<KeysQuery>,
) -> Result<Answer<v1::ListKeysResponse>> {
    answer(api.list_keys(&call, v1::ListKeysRequest { tenant: query.tenant }).await)
}

/// Revokes an API key.
#[utoipa::path(
    delete, path = "/v1/keys/{key}",
    responses((status = 200, description = "The key as it was", body = v1::Key)),
)]
async fn revoke_key(
    State(api): State<Api>,
    call: Call,
    Path(key_id): Path<String>,
) -> Result<Answer<v1::Key>> {
    answer(api.revoke_key(&call, v1::RevokeKeyRequest { key_id }).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AuditQuery {
    /// Only about this sandbox.
    sandbox: Option<String>,
    actor: Option<String>,
    action: Option<String>,
    /// `ok`, or the code of a failure.
    outcome: Option<String>,
    /// Decisions of policies with this answer: `allow`, `deny`, `audit` or `block`.
    verdict: Option<String>,
    /// Decisions of this rule.
    rule: Option<String>,
    /// Decisions of the policy whose digest begins so.
    policy: Option<String>,
    /// RFC 3339.
    since: Option<String>,
    /// RFC 3339.
    until: Option<String>,
    /// Only the last so many.
    last: Option<u32>,
}

/// Records of the audit log.
#[derive(Serialize, ToSchema)]
struct AuditRecords {
    records: Vec<v1::AuditRecord>,
    /// There are more than fit into one answer: ask for lines.
    more: bool,
}

/// Reads the audit log, oldest first.
///
/// As one JSON answer, as a line of JSON for each record where the caller accepts `application/x-ndjson`, or, where it
/// accepts `text/event-stream`, as events that go on with new records.
#[utoipa::path(
    get, path = "/v1/audit", params(AuditQuery),
    responses((status = 200, description = "Records", content(
        (AuditRecords = "application/json"),
        (Lines = "application/x-ndjson"),
        (Events = "text/event-stream"),
    ))),
)]
async fn query_audit(
    State(api): State<Api>,
    call: Call,
    Query(query): Query<AuditQuery>,
    accept: Accept,
) -> Result<Response> {
    let request = v1::QueryAuditRequest {
        sandbox: query.sandbox,
        actor: query.actor,
        action: query.action,
        outcome: query.outcome,
        verdict: query.verdict,
        rule: query.rule,
        policy: query.policy,
        since: query.since.map(|text| time("since", &text)).transpose()?,
        until: query.until.map(|text| time("until", &text)).transpose()?,
        follow: accept.events(),
        last: query.last,
    };
    let records = api.query_audit(&call, request).await?;
    if accept.events() {
        let named =
            |record: &v1::AuditRecord| Named { name: "record", id: Some(record.seq.to_string()) };
        return Ok(events(call, records, named));
    }
    if accept.lines() {
        return Ok(lines(records));
    }
    let (records, more) = gather(records, MOST_RECORDS as usize).await?;
    Ok(axum::Json(AuditRecords { records, more }).into_response())
}
