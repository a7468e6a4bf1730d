//! What handlers take from a request. Whatever cannot be taken is a [`Problem`] that names the part which is wrong.

use std::error::Error;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, FromRequestParts, Request};
use belljar_codes::Code;
use belljar_engine::aside_if;
use futures_util::{Stream, StreamExt};
use http::request::Parts;
use http::{HeaderMap, HeaderName, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use utoipa::IntoParams;

use crate::call::Call;
use crate::patience;
use crate::problem::{Problem, Result};

/// Most requests are words.
const SMALL: usize = 1 << 20;
/// Longer ones are read aside.
const SHORT: usize = 64 << 10;
/// Some bring files along.
const LARGE: usize = 32 << 20;

/// The identity that the gate found.
impl<S: Sync> FromRequestParts<S> for Call {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self> {
        // A request that came past identification would be a bug, and is nobody's.
        let nobody = || Problem::new(Code::Unauthenticated, "nobody in particular asks");
        parts.extensions.get::<Self>().cloned().ok_or_else(nobody)
    }
}

/// A JSON body of at most [`SMALL`] bytes.
pub(super) struct Json<T>(pub(super) T);

/// A JSON body that may carry files.
pub(super) struct LargeJson<T>(pub(super) T);

impl<T: DeserializeOwned + Send + 'static, S: Sync> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self> {
        read_json(request, SMALL).await.map(Self)
    }
}

impl<T: DeserializeOwned + Send + 'static, S: Sync> FromRequest<S> for LargeJson<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _state: &S) -> Result<Self> {
        read_json(request, LARGE).await.map(Self)
    }
}

async fn read_json<T: DeserializeOwned + Send + 'static>(
    request: Request,
    limit: usize,
) -> Result<T> {
    let kind = text(request.headers(), &header::CONTENT_TYPE).map(str::to_owned);
    if let Some(kind) = kind.as_deref().filter(|kind| !is_json(kind)) {
        return Err(no_json(&format!(
            "the body's content type is `{}`",
            belljar_policy::shown(kind)
        )));
    }
    let body = Limited::new(request.into_body(), limit);
    let bytes = body.collect().await.map_err(|error| broken(&*error))?.to_bytes();
    let bytes = match (kind, bytes.is_empty()) {
        (Some(_), _) => bytes,
        // Where all fields have defaults, nothing is as good as `{}`.
        (None, true) => Bytes::from_static(b"{}"),
        (None, false) => return Err(no_json("the body has no content type")),
    };
    aside_if(bytes.len() > SHORT, move || parse(&bytes)).await?
}

fn parse<T: DeserializeOwned>(text: &[u8]) -> Result<T> {
    // A list would be taken for the fields in their order.
    if text.trim_ascii_start().starts_with(b"[") {
        return Err(Problem::invalid("the body is a list").with_remedy("send an object"));
    }
    let mut reader = serde_json::Deserializer::from_slice(text);
    let value = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let place = error.path().to_string();
        let place = if place == "." { "the body".to_owned() } else { format!("`{place}`") };
        unusable(format!("{place} cannot be used"), error.inner())
    })?;
    reader.end().map_err(|error| unusable("the body has more than one value".into(), &error))?;
    Ok(value)
}

fn no_json(message: &str) -> Problem {
    Problem::new(Code::UnsupportedMediaType, message)
        .with_remedy("send JSON with `content-type: application/json`")
}

fn unusable(message: String, error: &dyn Error) -> Problem {
    Problem::invalid(message).caused_by(error).with_remedy("see /docs for the shape of the request")
}

fn is_json(kind: &str) -> bool {
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// The parameters of the path.
pub(super) struct Path<T>(pub(super) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self> {
        let path = axum::extract::Path::from_request_parts(parts, state).await;
        path.map(|axum::extract::Path(value)| Self(value)).map_err(|rejection| {
            Problem::invalid("the path cannot be used")
                .caused_by(&rejection)
                .with_remedy("encode names in the path as UTF-8")
        })
    }
}

/// The parameters of the query; unknown and repeated ones are refused unless they may repeat.
pub(super) struct Query<T>(pub(super) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self> {
        let pairs = parts.uri.query().unwrap_or_default().as_bytes();
        let reader = serde_html_form::Deserializer::from_bytes(pairs);
        serde_path_to_error::deserialize(reader).map(Self).map_err(|error| {
            let place = error.path().to_string();
            let message = if place == "." {
                "the query cannot be used".to_owned()
            } else {
                format!("the parameter `{}` cannot be used", belljar_policy::shown(&place))
            };
            Problem::invalid(message)
                .caused_by(error.inner())
                .with_remedy("see /docs for the parameters that the path knows")
        })
    }
}

/// What makes asking twice the same as asking once.
#[derive(IntoParams)]
#[into_params(parameter_in = Header)]
pub(super) struct IdempotencyKey {
    /// The same key with the same request gives the same result, for a day.
    #[param(rename = "idempotency-key", min_length = 1, max_length = 255, pattern = "^[!-~]+$")]
    key: Option<String>,
}

impl<S: Sync> FromRequestParts<S> for IdempotencyKey {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self> {
        let key = parts.headers.get("idempotency-key").map(|value| value.to_str());
        let key = key.transpose().map_err(|error| {
            Problem::invalid("the header `idempotency-key` is not text").caused_by(&error)
        })?;
        Ok(Self { key: key.map(str::to_owned) })
    }
}

impl IdempotencyKey {
    /// The key may also be in the body; two that differ are a mistake.
    pub(super) fn or(self, given: Option<String>) -> Result<Option<String>> {
        match (self.key, given) {
            (Some(header), Some(body)) if header != body => Err(Problem::invalid(
                "the header `idempotency-key` and the body name different keys",
            )
            .with_remedy("give the key once")),
            (header, body) => Ok(header.or(body)),
        }
    }
}

/// What kinds of answers the caller takes.
pub(super) struct Accept(String);

impl<S: Sync> FromRequestParts<S> for Accept {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _state: &S,
    ) -> std::result::Result<Self, Self::Rejection> {
        let accepted = text(&parts.headers, &header::ACCEPT).unwrap_or_default();
        Ok(Self(accepted.to_ascii_lowercase()))
    }
}

impl Accept {
    /// Whether this kind is asked for by its name.
    pub(super) fn names(&self, kind: &str) -> bool {
        self.0
            .split(',')
            .any(|entry| entry.split(';').next().is_some_and(|name| name.trim() == kind))
    }

    pub(super) fn events(&self) -> bool {
        self.names("text/event-stream")
    }

    pub(super) fn lines(&self) -> bool {
        self.names("application/x-ndjson")
    }
}

/// The event that a client which comes back has seen last.
pub(super) struct LastEvent(pub(super) Option<String>);

impl<S: Sync> FromRequestParts<S> for LastEvent {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        _state: &S,
    ) -> std::result::Result<Self, Self::Rejection> {
        let name = HeaderName::from_static("last-event-id");
        Ok(Self(text(&parts.headers, &name).map(str::to_owned)))
    }
}

/// A body of any size, piece by piece, as fast as it is taken.
pub(super) struct Pieces(Body);

impl<S: Sync> FromRequest<S> for Pieces {
    type Rejection = std::convert::Infallible;

    async fn from_request(
        request: Request,
        _state: &S,
    ) -> std::result::Result<Self, Self::Rejection> {
        Ok(Self(request.into_body()))
    }
}

impl Pieces {
    pub(super) fn stream(self) -> impl Stream<Item = Result<Bytes>> + Send {
        self.0.into_data_stream().map(|piece| piece.map_err(|error| broken(&error)))
    }
}

pub(super) fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Why a body did not come to its end.
fn broken(error: &(dyn Error + 'static)) -> Problem {
    if patience::is_stalled(error) {
        return patience::stalled();
    }
    let mut chain = std::iter::successors(Some(error), |error| Error::source(*error));
    match chain.any(|error| error.is::<LengthLimitError>()) {
        true => Problem::new(Code::RequestTooLarge, "the body is larger than is taken here")
            .with_remedy("send large files with `PUT …/files/content`"),
        false => Problem::new(Code::Interrupted, "the body broke off").caused_by(error),
    }
}

/// `KEY=VALUE` pairs of repeated parameters.
pub(super) fn pairs(
    name: &str,
    given: Vec<String>,
) -> Result<std::collections::BTreeMap<String, String>> {
    given
        .into_iter()
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(Problem::invalid(format!(
                "the parameter `{name}` is `{}`",
                belljar_policy::shown(&pair)
            ))
            .with_remedy(format!("write `{name}=KEY=VALUE`"))),
        })
        .collect()
}

/// A time as RFC 3339 has it.
pub(super) fn time(name: &str, text: &str) -> Result<prost_types::Timestamp> {
    let wrong = || {
        Problem::invalid(format!("the parameter `{name}` is `{}`", belljar_policy::shown(text)))
            .with_remedy("write a time such as `2026-01-31T12:00:00Z`")
    };
    belljar_api::parse_rfc3339(text).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_found_by_name() {
        let check = |accepted: &str, kind: &str, expected: bool| {
            assert_eq!(Accept(accepted.to_owned()).names(kind), expected, "{accepted}");
        };
        check("text/event-stream", "text/event-stream", true);
        check("application/json, text/event-stream;q=0.5", "text/event-stream", true);
        check("*/*", "text/event-stream", false);
        check("", "text/event-stream", false);
    }

    /// Says nothing, ever.
    fn silent() -> Body {
        Body::from_stream(futures_util::stream::pending::<Result<Bytes>>())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_that_stalls_is_given_up() {
        let body = Body::new(tower_http::timeout::TimeoutBody::new(
            crate::patience::Patience::default().body,
            silent(),
        ));
        let request = Request::builder().header(header::CONTENT_TYPE, "application/json");
        let read = read_json::<serde_json::Value>(request.body(body).unwrap(), SMALL).await;
        assert_eq!(read.unwrap_err().code, Code::RequestTimedOut);
    }

    #[test]
    fn pairs_have_a_key() {
        let given = |text: &str| pairs("label", vec![text.to_owned()]);
        assert_eq!(given("a=b=c").unwrap().get("a").map(String::as_str), Some("b=c"));
        assert_eq!(given("a=").unwrap().get("a").map(String::as_str), Some(""));
        assert!(given("=b").is_err());
        assert!(given("a").is_err());
    }
}
