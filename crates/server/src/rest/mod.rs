//! The API over REST: the same messages as JSON, streams as server-sent events, terminals over WebSocket.
//!
//! Handlers only put requests together. A route is served and documented by the same line, so the document cannot
//! leave one out. What the document says about every operation alike (who may ask, how it fails) is in [`document`].

#![allow(unused_qualifications, reason = "the macro that documents routes writes them")]

mod attach;
mod callbacks;
mod content;
mod document;
mod extract;
mod files;
mod keys;
mod log;
mod networks;
mod offsets;
mod page;
mod policies;
mod ports;
mod processes;
mod range;
mod sandboxes;
mod secrets;
mod snapshots;
mod stream;
mod system;
mod tenants;
mod trees;
mod upgrade;
mod webhooks;

use std::time::Duration;

use axum::body::Body;
use axum::response::{Html, Response};
use axum::routing::get;
use axum::{Json, Router};
use http::{Method, StatusCode, header};
use tower_http::timeout::RequestBodyTimeoutLayer;
use utoipa_axum::router::OpenApiRouter;

use crate::api::Api;
use crate::problem::{Problem, Result};

/// `stall`: a body of which nothing comes for so long is given up. While we do not read, the clock stands still.
pub(crate) fn router(api: &Api, stall: Duration) -> Router {
    let (routes, document) = OpenApiRouter::new()
        .merge(sandboxes::router())
        .merge(processes::router())
        .merge(log::router())
        .merge(attach::router())
        .merge(callbacks::router())
        .merge(files::router())
        .merge(content::router())
        .merge(trees::router())
        .merge(snapshots::router())
        .merge(policies::router())
        .merge(ports::router())
        .merge(networks::router())
        .merge(system::router())
        .merge(tenants::router())
        .merge(keys::router())
        .merge(webhooks::router())
        .merge(secrets::router())
        .split_for_parts();
    let document = document::finish(&document);
    let page = page::render(&document);
    let document = document.to_string();
    routes
        .with_state(api.clone())
        .route("/openapi.json", get(|| async { ([JSON], document) }))
        .route("/docs", get(|| async { ([PAGE_POLICY], Html(page)) }))
        .layer(RequestBodyTimeoutLayer::new(stall))
        .layer(axum::middleware::from_fn(tell_options))
}

const JSON: (header::HeaderName, &str) = (header::CONTENT_TYPE, "application/json");

/// The page has its style within and needs nothing else.
const PAGE_POLICY: (header::HeaderName, &str) =
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; style-src 'unsafe-inline'");

/// What a handler answers with.
type Answer<T> = Json<T>;

fn answer<T>(result: Result<T>) -> Result<Answer<T>> {
    result.map(Json)
}

/// What the path names may be in the body too, if it is the same.
fn same(field: &str, path: String, body: &str) -> Result<String> {
    if body.is_empty() || body == path {
        return Ok(path);
    }
    Err(Problem::invalid(format!("`{field}` in the body is not what the path names"))
        .with_remedy(format!("leave out `{field}`")))
}

/// Server-sent events, for the document.
#[derive(utoipa::ToSchema)]
#[schema(value_type = String)]
struct Events(#[allow(dead_code, reason = "only its schema is of use")] String);

/// A JSON value per line, for the document.
#[derive(utoipa::ToSchema)]
#[schema(value_type = String)]
struct Lines(#[allow(dead_code, reason = "only its schema is of use")] String);

/// Bytes as they are, for the document.
#[derive(utoipa::ToSchema)]
#[schema(value_type = String, format = Binary)]
struct Binary(#[allow(dead_code, reason = "only its schema is of use")] String);

/// `OPTIONS` tells the methods of a path. Pages of other sites get no permission.
async fn tell_options(request: axum::extract::Request, next: axum::middleware::Next) -> Response {
    let asked = request.method() == Method::OPTIONS;
    let mut response = next.run(request).await;
    if asked && response.status() == StatusCode::METHOD_NOT_ALLOWED {
        *response.status_mut() = StatusCode::NO_CONTENT;
        *response.body_mut() = Body::empty();
    }
    response
}
