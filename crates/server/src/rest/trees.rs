//! Whole trees of files: copied, searched, packed and unpacked.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belljar_api::v1;
use futures_util::TryStreamExt;
use http::{HeaderValue, header};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Accept, Json, Path, Pieces, Query};
use super::stream::{begun, bytes, gather, lines};
use super::{Answer, Binary, Lines, answer, same};
use crate::api::Api;
use crate::call::Call;
use crate::problem::Result;

/// What one JSON answer brings at most; lines have no such bound.
const MOST_HITS: u32 = 10_000;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(copy_file))
        .routes(routes!(search_files))
        .routes(routes!(read_archive, write_archive))
}

/// Copies a file, or a directory with all that is in it.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/files/copy",
    request_body = v1::CopyFileRequest,
    responses((status = 200, description = "What was copied", body = v1::CopyFileResponse)),
)]
async fn copy_file(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Json(mut request): Json<v1::CopyFileRequest>,
) -> Result<Answer<v1::CopyFileResponse>> {
    request.sandbox = same("sandbox", sandbox, &request.sandbox)?;
    answer(api.copy_file(&call, request).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct SearchQuery {
    /// Absent: the sandbox's working directory.
    path: Option<String>,
    /// A glob for names or paths: `*.py`, `src/**/test_*`.
    name: Option<String>,
    /// Text, or a regular expression with `regex`.
    content: Option<String>,
    #[serde(default)]
    #[param(required = false)]
    regex: bool,
    #[serde(default)]
    #[param(required = false)]
    ignore_case: bool,
    max_depth: Option<u32>,
    max_results: Option<u32>,
}

/// What a search found.
#[derive(Serialize, ToSchema)]
struct SearchHits {
    hits: Vec<v1::SearchHit>,
    /// There are more than fit into one answer: ask for lines.
    more: bool,
}

/// Finds files by name and content.
///
/// As one JSON answer, or, where the caller accepts `application/x-ndjson`, as a line of JSON for each hit as it is
/// found.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/search", params(SearchQuery),
    responses((status = 200, description = "Hits", content(
        (SearchHits = "application/json"), (Lines = "application/x-ndjson"),
    ))),
)]
async fn search_files(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Query(query): Query<SearchQuery>,
    accept: Accept,
) -> Result<Response> {
    let request = v1::SearchFilesRequest {
        sandbox,
        path: query.path.unwrap_or_else(|| ".".to_owned()),
        name: query.name,
        content: query.content,
        regex: query.regex,
        ignore_case: query.ignore_case,
        max_depth: query.max_depth,
        max_results: query.max_results,
    };
    let found = api.search_files(&call, request).await?;
    if accept.lines() {
        return Ok(lines(begun(found).await?));
    }
    let (hits, more) = gather(found, MOST_HITS as usize).await?;
    Ok(axum::Json(SearchHits { hits, more }).into_response())
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ArchiveQuery {
    /// Absent: the sandbox's working directory.
    path: Option<String>,
    /// Absent: `tar`.
    format: Option<v1::ArchiveFormat>,
}

impl ArchiveQuery {
    fn place(self) -> (String, v1::ArchiveFormat) {
        (self.path.unwrap_or_else(|| ".".to_owned()), self.format.unwrap_or_default())
    }
}

/// Reads a tree as one archive.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/archive", params(ArchiveQuery),
    responses((status = 200, description = "The archive", content(
        (Binary = "application/x-tar"), (Binary = "application/gzip"), (Binary = "application/zip"),
    ))),
)]
async fn read_archive(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Query(query): Query<ArchiveQuery>,
) -> Result<Response> {
    let (path, format) = query.place();
    let request = v1::ReadArchiveRequest { sandbox, path, format: format.into() };
    let chunks = begun(api.read_archive(&call, request).await?).await?;
    let mut response = bytes(chunks.map_ok(|chunk| chunk.data));
    let kind = match format {
        v1::ArchiveFormat::Unspecified | v1::ArchiveFormat::Tar => "application/x-tar",
        v1::ArchiveFormat::TarGz => "application/gzip",
        v1::ArchiveFormat::Zip => "application/zip",
    };
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

/// Unpacks the archive in the body below a directory.
#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/files/archive", params(ArchiveQuery),
    request_body(content = Binary, content_type = "application/octet-stream"),
    responses((status = 200, description = "What was unpacked", body = v1::WriteArchiveResponse)),
)]
async fn write_archive(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Query(query): Query<ArchiveQuery>,
    body: Pieces,
) -> Result<Answer<v1::WriteArchiveResponse>> {
    let (path, format) = query.place();
    let data = bytes::Bytes::new();
    let first = v1::WriteArchiveRequest { sandbox, path, format: format.into(), data };
    answer(api.write_archive(&call, first, body.stream()).await)
}
