//! All routes of the server, behind one gate.

use axum::Router;
use axum::extract::Request;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use belljar_codes::Code;
use tonic_web::GrpcWebLayer;
use tower_http::catch_panic::CatchPanicLayer;

use crate::api::Api;
use crate::authenticate::{Gate, authenticate};
use crate::own_keys::OwnKeys;
use crate::patience::Patience;
use crate::problem::Problem;
use crate::{grpc, measure, rest};

pub(crate) fn router(api: &Api, own_keys: OwnKeys, patience: Patience) -> Router {
    let gate = Gate::new(api, own_keys, patience);
    let bound = move |request: Request| std::future::ready(patience.bound(request));
    let grpc = grpc::routes(api).prepare().into_axum_router();
    // Behind what makes gRPC of gRPC-Web, which hands on what went wrong as text.
    let grpc = grpc.layer(axum::middleware::map_request(bound)).layer(GrpcWebLayer::new());
    Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .merge(measure::router(api))
        .merge(rest::router(api, patience.body))
        .merge(grpc.fallback(nothing))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(axum::middleware::from_fn_with_state(gate, authenticate))
}

async fn nothing(request: Request) -> Problem {
    let path = belljar_policy::shown(request.uri().path());
    Problem::new(Code::RouteNotFound, format!("there is nothing at `{path}`"))
        .with_remedy("see /docs for the paths that exist")
}

/// A bug in one request is an answer to that request; the others on its connection go on.
fn panicked(panic: Box<dyn std::any::Any + Send>) -> Response {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    tracing::error!(text, "a request made the server panic");
    Problem::new(Code::Internal, "the request made the server fail")
        .with_remedy("report it with the server's log")
        .into_response()
}
