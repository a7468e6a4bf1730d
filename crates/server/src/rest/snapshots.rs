//! Snapshots, and sandboxes from them.

use axum::extract::State;
use belljar_api::v1;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Json, LargeJson, Path, Query, pairs};
use super::{Answer, answer, same};
use crate::api::Api;
use crate::call::Call;
use crate::problem::Result;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create_snapshot))
        .routes(routes!(list_snapshots))
        .routes(routes!(get_snapshot, remove_snapshot))
        .routes(routes!(restore_snapshot))
}

/// Keeps the files of a sandbox's writable directories.
///
/// Processes and their memory are not kept.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/snapshots",
    request_body = v1::CreateSnapshotRequest,
    responses((status = 200, description = "The snapshot", body = v1::Snapshot)),
)]
async fn create_snapshot(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Json(mut request): Json<v1::CreateSnapshotRequest>,
) -> Result<Answer<v1::Snapshot>> {
    request.sandbox = same("sandbox", sandbox, &request.sandbox)?;
    answer(api.create_snapshot(&call, request).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// `KEY=VALUE`; all must match.
    #[serde(default)]
    #[param(required = false)]
    label: Vec<String>,
    /// Only of this sandbox, by name or id.
    sandbox: Option<String>,
    /// At most 1000; absent: 100.
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
    /// For administrators: only this tenant's.
    tenant: Option<String>,
}

/// Lists snapshots, oldest first, page by page.
#[utoipa::path(
    get, path = "/v1/snapshots", params(ListQuery),
    responses((status = 200, description = "A page", body = v1::ListSnapshotsResponse)),
)]
async fn list_snapshots(
    State(api): State<Api>,
    call: Call,
    Query(query): Query<ListQuery>,
) -> Result<Answer<v1::ListSnapshotsResponse>> {
    let request = v1::ListSnapshotsRequest {
        labels: pairs("label", query.label)?,
        sandbox: query.sandbox,
        page_size: query.page_size,
        page_token: query.page_token,
        tenant: query.tenant,
    };
    answer(api.list_snapshots(&call, request).await)
}

/// Looks at a snapshot.
#[utoipa::path(
    get, path = "/v1/snapshots/{snapshot}",
    responses((status = 200, description = "The snapshot", body = v1::Snapshot)),
)]
async fn get_snapshot(
    State(api): State<Api>,
    call: Call,
    Path(snapshot): Path<String>,
) -> Result<Answer<v1::Snapshot>> {
    answer(api.get_snapshot(&call, v1::GetSnapshotRequest { snapshot_id: snapshot }).await)
}

/// Removes a snapshot; sandboxes made from it stay.
#[utoipa::path(
    delete, path = "/v1/snapshots/{snapshot}",
    responses((status = 200, description = "It is gone", body = v1::RemoveSnapshotResponse)),
)]
async fn remove_snapshot(
    State(api): State<Api>,
    call: Call,
    Path(snapshot): Path<String>,
) -> Result<Answer<v1::RemoveSnapshotResponse>> {
    answer(api.remove_snapshot(&call, v1::RemoveSnapshotRequest { snapshot_id: snapshot }).await)
}

/// Creates a sandbox with the files of a snapshot, which are verified first.
#[utoipa::path(
    post, path = "/v1/snapshots/{snapshot}/restore",
    request_body = v1::RestoreSnapshotRequest,
    responses((status = 200, description = "The new sandbox", body = v1::Sandbox)),
)]
async fn restore_snapshot(
    State(api): State<Api>,
    call: Call,
    Path(snapshot): Path<String>,
    LargeJson(mut request): LargeJson<v1::RestoreSnapshotRequest>,
) -> Result<Answer<v1::Sandbox>> {
    request.snapshot_id = same("snapshot_id", snapshot, &request.snapshot_id)?;
    answer(api.restore_snapshot(&call, request).await)
}
