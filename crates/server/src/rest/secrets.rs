//! Secrets that requests of sandboxes are given.

use axum::extract::State;
use belljar_api::v1;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Json, Path, Query};
use super::{Answer, answer, same};
use crate::api::Api;
use crate::call::Call;
use crate::problem::Result;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new().routes(routes!(list_secrets)).routes(routes!(set_secret, remove_secret))
}

/// Keeps a secret under a name, in the place of an earlier one. It cannot be read again.
#[utoipa::path(
    put, path = "/v1/secrets/{secret}",
    request_body = v1::SetSecretRequest,
    responses((status = 200, description = "Its name and times", body = v1::Secret)),
)]
async fn set_secret(
    State(api): State<Api>,
    call: Call,
    Path(secret): Path<String>,
    Json(mut request): Json<v1::SetSecretRequest>,
) -> Result<Answer<v1::Secret>> {
    request.name = same("name", secret, &request.name)?;
    answer(api.set_secret(&call, request).await)
}

/// Lists names and times of secrets.
#[utoipa::path(
    get, path = "/v1/secrets",
    responses((status = 200, description = "All of them", body = v1::ListSecretsResponse)),
)]
async fn list_secrets(
    State(api): State<Api>,
    call: Call,
) -> Result<Answer<v1::ListSecretsResponse>> {
    answer(api.list_secrets(&call, v1::ListSecretsRequest {}).await)
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct RemoveQuery {
    /// For administrators; others have one.
    tenant: Option<String>,
}

/// Removes a secret; requests that need it fail from now on.
#[utoipa::path(
    delete, path = "/v1/secrets/{secret}",
    params(RemoveQuery),
    responses((status = 200, description = "It is gone", body = v1::RemoveSecretResponse)),
)]
async fn remove_secret(
    State(api): State<Api>,
    call: Call,
    Path(name): Path<String>,
    Query(RemoveQuery { tenant }): Query<RemoveQuery>,
) -> Result<Answer<v1::RemoveSecretResponse>> {
    answer(api.remove_secret(&call, v1::RemoveSecretRequest { name, tenant }).await)
}
