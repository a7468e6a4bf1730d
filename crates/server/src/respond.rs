//! Answers that tell of a problem, in the caller's language, under the request's number.
//!
//! Whoever finds a problem answers with it as it is; the gate, through which every answer passes, knows the request's
//! number and its language and writes the body.

use axum::Json;
use axum::response::{IntoResponse, Response};
use belljar_api::problem;
use belljar_codes::Code;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use tonic::Status;

use crate::preview::Forwarded;
use crate::problem::Problem;
use crate::{measure, patience};

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

pub(crate) fn is_grpc(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("application/grpc"))
}

/// An answer without a body: [`finish`] writes it.
impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = self.http_status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

/// Writes the request's number into the answer, and the problem if it is one; counts what nobody has counted.
pub(crate) fn finish(mut response: Response, request_id: &str, grpc: bool) -> Response {
    let told = response.extensions_mut().remove::<Problem>();
    let own = response.extensions().get::<Forwarded>().is_none();
    if let Some(problem) = told.or_else(|| own.then(|| untold(&response)).flatten()) {
        if !problem.is_counted() {
            measure::error(&problem);
        }
        response = write(&problem, response, request_id, grpc);
    }
    if let Ok(value) = HeaderValue::from_str(request_id) {
        response.headers_mut().insert(REQUEST_ID, value);
    }
    response
}

/// The problem as a gRPC status or as a JSON body; status and headers stay as they are.
fn write(problem: &Problem, response: Response, request_id: &str, grpc: bool) -> Response {
    if grpc {
        return problem.status(request_id).into_http::<axum::body::Body>();
    }
    let status = response.status();
    let mut written = (status, Json(problem.wire(request_id))).into_response();
    let headers = written.headers_mut();
    for (name, value) in response.headers() {
        if ![header::CONTENT_TYPE, header::CONTENT_LENGTH].contains(name) {
            headers.append(name, value.clone());
        }
    }
    match status {
        StatusCode::UNAUTHORIZED => {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        StatusCode::TOO_MANY_REQUESTS => {
            headers.entry(header::RETRY_AFTER).or_insert(HeaderValue::from_static("1"));
        }
        _ => {}
    }
    written
}

/// Failures that the layers below the API answer with themselves have a status and no words of ours.
fn untold(response: &Response) -> Option<Problem> {
    if let Some(status) = Status::from_header_map(response.headers()) {
        return untold_status(&status);
    }
    let status = response.status();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let ours = kind.is_some_and(|kind| kind == "application/json");
    if ours || !(status.is_client_error() || status.is_server_error()) {
        return None;
    }
    let (code, message, remedy) = match status {
        StatusCode::METHOD_NOT_ALLOWED => (
            Code::MethodNotAllowed,
            "this path knows other methods",
            "use one that the header `allow` names",
        ),
        StatusCode::NOT_FOUND => (
            Code::RouteNotFound,
            "there is nothing at this path",
            "see /docs for the paths that exist",
        ),
        StatusCode::PAYLOAD_TOO_LARGE => {
            (Code::RequestTooLarge, "the request is too large", "send less at once")
        }
        StatusCode::UNSUPPORTED_MEDIA_TYPE => (
            Code::UnsupportedMediaType,
            "the body's content type is not understood",
            "see /docs for what the path takes",
        ),
        _ if status.is_client_error() => {
            (Code::InvalidArgument, "the request cannot be understood", "see /docs")
        }
        _ => (Code::Internal, "the request failed", "look into the server's log"),
    };
    Some(Problem::new(code, message).with_remedy(remedy))
}

/// The same for gRPC, whose failures are not the answer's own. Those of the API carry a problem; what has none comes from
/// whoever takes messages apart.
fn untold_status(status: &Status) -> Option<Problem> {
    let (code, message, remedy) = match status.code() {
        tonic::Code::Ok => return None,
        _ if problem::from_status(status).is_some() => return None,
        tonic::Code::DeadlineExceeded => return Some(patience::stalled()),
        tonic::Code::Unimplemented => (
            Code::RouteNotFound,
            "the server does not know this method, or this form of it",
            "server and client may be of different versions",
        ),
        tonic::Code::OutOfRange | tonic::Code::ResourceExhausted => {
            (Code::RequestTooLarge, "the message is too large", "send less at once")
        }
        _ => (
            Code::InvalidArgument,
            "the message cannot be understood",
            "server and client may be of different versions",
        ),
    };
    Some(Problem::new(code, message).with_remedy(remedy).caused_by(status))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_words_gets_some_and_keeps_its_headers() {
        let bare = (StatusCode::METHOD_NOT_ALLOWED, [(header::ALLOW, "GET")], "no").into_response();
        let finished = finish(bare, "r1", false);
        assert_eq!(finished.status(), StatusCode::METHOD_NOT_ALLOWED);
        assert_eq!(finished.headers()[header::ALLOW], "GET");
        assert_eq!(finished.headers()[header::CONTENT_TYPE], "application/json");
        assert_eq!(finished.headers()[REQUEST_ID], "r1");
    }

    #[test]
    fn an_answer_stays_as_it_is() {
        let finished = finish("fine".into_response(), "r1", false);
        assert_eq!(finished.status(), StatusCode::OK);
        assert_ne!(finished.headers()[header::CONTENT_TYPE], "application/json");
    }
}
