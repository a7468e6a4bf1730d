//! Ports of sandboxes: shown, listed, visited by a path of the API.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use belljar_api::v1;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Json, Path};
use super::{Answer, answer, same};
use crate::api::Api;
use crate::call::Call;
use crate::limit::Admitted;
use crate::preview::{Form, forward};
use crate::problem::{Problem, Result};

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(expose_port, list_ports))
        .routes(routes!(hide_port))
        .route("/v1/sandboxes/{sandbox}/ports/{port}/", axum::routing::any(visit))
        .route("/v1/sandboxes/{sandbox}/ports/{port}/{*path}", axum::routing::any(visit))
}

/// Shows a port over HTTP, to who has a token for it or to everybody.
///
/// Whoever may use the API reaches every port also at `/v1/sandboxes/{sandbox}/ports/{port}/…`, with any method, shown or
/// not. WebSockets and streams pass.
#[utoipa::path(
    post, path = "/v1/sandboxes/{sandbox}/ports",
    request_body = v1::ExposePortRequest,
    responses((status = 200, description = "Where it is shown", body = v1::ExposedPort)),
)]
async fn expose_port(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
    Json(mut request): Json<v1::ExposePortRequest>,
) -> Result<Answer<v1::ExposedPort>> {
    request.sandbox = same("sandbox", sandbox, &request.sandbox)?;
    answer(api.expose_port(&call, request).await)
}

/// Lists the ports of a sandbox that are shown.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/ports",
    responses((status = 200, description = "The ports", body = v1::ListPortsResponse)),
)]
async fn list_ports(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
) -> Result<Answer<v1::ListPortsResponse>> {
    answer(api.list_ports(&call, v1::ListPortsRequest { sandbox }).await)
}

/// Shows a port no longer.
#[utoipa::path(
    delete, path = "/v1/sandboxes/{sandbox}/ports/{port}",
    responses((status = 200, description = "Whether it was shown", body = v1::HidePortResponse)),
)]
async fn hide_port(
    State(api): State<Api>,
    call: Call,
    Path((sandbox, port)): Path<(String, u32)>,
) -> Result<Answer<v1::HidePortResponse>> {
    answer(api.hide_port(&call, v1::HidePortRequest { sandbox, port }).await)
}

/// Hands a request to a port. Not in the document: what is there is the sandbox's.
async fn visit(State(api): State<Api>, call: Call, request: Request<Body>) -> Result<Response> {
    // From the path as it was sent: what follows the port is not ours to decode.
    let path = request.uri().path();
    let parts: Vec<&str> = path.splitn(7, '/').collect();
    let [_, _, _, sandbox, _, port, _] = parts[..] else {
        return Err(Problem::invalid("the path names no port"));
    };
    let number = port.parse().map_err(|_| Problem::invalid("the path names no port"))?;
    let prefix = format!("/v1/sandboxes/{sandbox}/ports/{port}");
    let tunnel = api.visit_port(&call, sandbox, number).await?;
    let admitted = request.extensions().get::<Arc<Admitted>>().cloned();
    forward(tunnel, request, &Form::Path { prefix }, admitted).await
}
