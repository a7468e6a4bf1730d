//! Files of sandboxes, apart from their contents.

use axum::extract::State;
use axum::response::Response;
use belljar_api::v1;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Json, Path, Query};
use super::stream::{Named, events};
use super::{Answer, Events, answer, same};
use crate::api::Api;
use crate::call::Call;
use crate::problem::Result;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_files))
        .routes(routes!(stat_file))
        .routes(routes!(make_directory))
        .routes(routes!(move_file))
        .routes(routes!(change_mode))
        .routes(routes!(remove_file))
        .routes(routes!(watch_files))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Absent: the sandbox's working directory.
    path: Option<String>,
    /// 0 and 1: only the directory itself.
    #[serde(default)]
    #[param(required = false)]
    depth: u32,
    /// At most 1000.
    page_size: Option<u32>,
    /// `next_page_token` of the page before.
    page_token: Option<String>,
}

/// Lists a directory, page by page.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files", params(ListQuery),
    responses((status = 200, description = "A page", body = v1::ListFilesResponse)),
)]
async fn list_files(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Query(query): Query<ListQuery>,
) -> Result<Answer<v1::ListFilesResponse>> {
    let request = v1::ListFilesRequest {
        sandbox,
        path: query.path.unwrap_or_else(|| ".".to_owned()),
        depth: query.depth,
        page_size: query.page_size,
        page_token: query.page_token,
    };
    answer(api.list_files(&call, request).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct StatQuery {
    path: String,
    /// Of what a symbolic link points to.
    #[serde(default)]
    #[param(required = false)]
    follow: bool,
}

/// Looks at a path.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/stat", params(StatQuery),
    responses((status = 200, description = "What is known", body = v1::FileInfo)),
)]
async fn stat_file(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Query(query): Query<StatQuery>,
) -> Result<Answer<v1::FileInfo>> {
    let request = v1::StatFileRequest { sandbox, path: query.path, follow: query.follow };
    answer(api.stat_file(&call, request).await)
}

/// Makes a directory.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/files/mkdir",
    request_body = v1::MakeDirectoryRequest,
    responses((status = 200, description = "The directory", body = v1::FileInfo)),
)]
async fn make_directory(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Json(mut request): Json<v1::MakeDirectoryRequest>,
) -> Result<Answer<v1::FileInfo>> {
    request.sandbox = same("sandbox", sandbox, &request.sandbox)?;
    answer(api.make_directory(&call, request).await)
}

/// Moves a file or directory.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/files/move",
    request_body = v1::MoveFileRequest,
    responses((status = 200, description = "Where it is now", body = v1::FileInfo)),
)]
async fn move_file(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Json(mut request): Json<v1::MoveFileRequest>,
) -> Result<Answer<v1::FileInfo>> {
    request.sandbox = same("sandbox", sandbox, &request.sandbox)?;
    answer(api.move_file(&call, request).await)
}

/// Changes permission bits.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/files/chmod",
    request_body = v1::ChangeModeRequest,
    responses((status = 200, description = "The file", body = v1::FileInfo)),
)]
async fn change_mode(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Json(mut request): Json<v1::ChangeModeRequest>,
) -> Result<Answer<v1::FileInfo>> {
    request.sandbox = same("sandbox", sandbox, &request.sandbox)?;
    answer(api.change_mode(&call, request).await)
}

/// Removes a file, or a directory with all that is in it.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/files/remove",
    request_body = v1::RemoveFileRequest,
    responses((status = 200, description = "It is gone", body = v1::RemoveFileResponse)),
)]
async fn remove_file(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Json(mut request): Json<v1::RemoveFileRequest>,
) -> Result<Answer<v1::RemoveFileResponse>> {
    request.sandbox = same("sandbox", sandbox, &request.sandbox)?;
    answer(api.remove_file(&call, request).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WatchQuery {
    path: String,
    #[serde(default)]
    #[param(required = false)]
    recursive: bool,
}

/// Tells of changes below a path as they happen, as server-sent events.
///
/// The first event says `watching`: nothing after it is missed.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/watch", params(WatchQuery),
    responses((status = 200, description = "Changes", body = Events, content_type = "text/event-stream")),
)]
async fn watch_files(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Query(query): Query<WatchQuery>,
) -> Result<Response> {
    let request = v1::WatchFilesRequest { sandbox, path: query.path, recursive: query.recursive };
    let answers = api.watch_files(&call, request).await?;
    Ok(events(call, answers, |_| Named { name: "change", id: None }))
}
