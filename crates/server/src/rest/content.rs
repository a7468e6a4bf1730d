//! What is in files: read whole or in part, written piece by piece, in constant memory.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use belljar_api::v1;
use belljar_codes::Code;
use futures_util::TryStreamExt;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Path, Pieces, Query, text};
use super::range::{Part, wanted};
use super::stream::bytes;
use super::{Answer, Binary, answer};
use crate::api::Api;
use crate::call::Call;
use crate::problem::{Problem, Result};

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(read_file, write_file, delete_file))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ReadQuery {
    path: String,
}

/// Reads a file.
///
/// The header `range` selects a part, as `bytes=FIRST-LAST`, `bytes=FIRST-` or `bytes=-LENGTH`.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/files/content",
    params(ReadQuery, ("range" = Option<String>, Header, description = "The part that is wanted")),
    responses(
        (status = 200, description = "The file", body = Binary, content_type = "application/octet-stream"),
        (status = 206, description = "A part", body = Binary, content_type = "application/octet-stream"),
        (status = 416, description = "The part lies outside of the file", body = v1::Problem),
    ),
)]
async fn read_file(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Query(ReadQuery { path }): Query<ReadQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let stat = v1::StatFileRequest { sandbox: sandbox.clone(), path: path.clone(), follow: true };
    let info = api.stat_file(&call, stat).await?;
    refuse_directory(&info)?;
    // Whether the file is still the one that a condition means cannot be told.
    let range = text(&headers, &header::RANGE).filter(|_| !headers.contains_key(header::IF_RANGE));
    let part = match wanted(range, info.size) {
        Ok(part) => part,
        Err(problem) => return Ok(outside(problem, info.size)),
    };
    // Files that the kernel makes up have no size; they are read to their end.
    let all = (info.size > 0).then_some(Part { start: 0, end: info.size });
    let sent = part.or(all);
    let request = v1::ReadFileRequest {
        sandbox,
        path,
        offset: sent.map_or(0, |part| part.start),
        length: sent.map(|part| part.end - part.start),
    };
    let chunks = api.read_file(&call, request).await?;
    let mut response = bytes(chunks.map_ok(|chunk| chunk.data));
    let headers = response.headers_mut();
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    if let Some(Part { start, end }) = sent {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(end - start));
    }
    if let Some(Part { start, end }) = part {
        let place = format!("bytes {start}-{}/{}", end - 1, info.size);
        headers.extend(HeaderValue::from_str(&place).map(|place| (header::CONTENT_RANGE, place)));
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

fn refuse_directory(info: &v1::FileInfo) -> Result<()> {
    if info.kind() != v1::FileKind::Directory {
        return Ok(());
    }
    let path = belljar_policy::shown(&info.path);
    Err(Problem::new(Code::FileKindWrong, format!("`{path}` is a directory"))
        .with_remedy("list it with `GET …/files`"))
}

fn outside(problem: Problem, size: u64) -> Response {
    let place = [(header::CONTENT_RANGE, format!("bytes */{size}"))];
    let mut response = (place, problem).into_response();
    *response.status_mut() = StatusCode::RANGE_NOT_SATISFIABLE;
    response
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WriteQuery {
    path: String,
    /// Absent: `truncate`.
    mode: Option<v1::WriteMode>,
    /// Octal digits, such as `644`. Absent: 644 for a new file.
    permissions: Option<String>,
    #[serde(default)]
    #[param(required = false)]
    make_parents: bool,
}

/// Writes a file from the body.
#[utoipa::path(
    put, path = "/v1/sandboxes/{sandbox}/files/content", params(WriteQuery),
    request_body(content = Binary, content_type = "application/octet-stream"),
    responses((status = 200, description = "The file", body = v1::FileInfo)),
)]
async fn write_file(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Query(query): Query<WriteQuery>,
    body: Pieces,
) -> Result<Answer<v1::FileInfo>> {
    let first = v1::WriteFileRequest {
        sandbox,
        path: query.path,
        mode: query.mode.unwrap_or_default().into(),
        permissions: query.permissions.as_deref().map(octal).transpose()?,
        make_parents: query.make_parents,
        data: bytes::Bytes::new(),
    };
    answer(api.write_file(&call, first, body.stream()).await)
}

fn octal(digits: &str) -> Result<u32> {
    u32::from_str_radix(digits, 8).map_err(|error| {
        Problem::invalid(format!("`permissions` is `{}`", belljar_policy::shown(digits)))
            .caused_by(&error)
            .with_remedy("write octal digits, such as `644`")
    })
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct DeleteQuery {
    path: String,
    /// A directory with all that is in it.
    #[serde(default)]
    #[param(required = false)]
    recursive: bool,
}

/// Removes a file.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}/files/content", params(DeleteQuery),
    responses((status = 200, description = "It is gone", body = v1::RemoveFileResponse)),
)]
async fn delete_file(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Query(query): Query<DeleteQuery>,
) -> Result<Answer<v1::RemoveFileResponse>> {
    let request = v1::RemoveFileRequest { sandbox, path: query.path, recursive: query.recursive };
    answer(api.remove_file(&call, request).await)
}
