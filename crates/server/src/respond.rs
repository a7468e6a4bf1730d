//! Answers that do not come from a service: problems, in the caller's language, under the request's number.

use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderValue, header};

use crate::problem::Problem;

/// The header that carries a request's number.
pub(crate) const REQUEST_ID: &str = "x-request-id";

/// A number that the caller gave is kept if it is short and plain.
const MAX_GIVEN: usize = 64;

pub(crate) fn request_id(headers: &HeaderMap) -> String {
    let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok()).filter(|given| {
        !given.is_empty()
            && given.len() <= MAX_GIVEN
            && given.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
    });
    given.map_or_else(crate::random::id, str::to_owned)
}

pub(crate) fn with_request_id(mut response: Response, request_id: &str) -> Response {
    if let Ok(value) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/grpc"))
}

/// The problem as a gRPC status or as a JSON body.
pub(crate) fn problem(problem: &Problem, request_id: &str, grpc: bool) -> Response {
    if grpc {
        return problem.status(request_id).into_http::<axum::body::Body>();
    }
    let mut response = (problem.http_status(), Json(problem.wire(request_id))).into_response();
    let headers = response.headers_mut();
    if problem.http_status() == http::StatusCode::UNAUTHORIZED {
        headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    if problem.http_status() == http::StatusCode::TOO_MANY_REQUESTS {
        headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}
