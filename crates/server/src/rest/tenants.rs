//! Tenants and what they may use.

use axum::extract::State;
use belljar_api::v1;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Json, Path};
use super::{Answer, answer, same};
use crate::api::Api;
use crate::call::Call;
use crate::problem::Result;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create_tenant, list_tenants))
        .routes(routes!(get_tenant, remove_tenant))
        .routes(routes!(set_quotas))
}

/// Creates a tenant.
#[utoipa::path(
    post, path = "/v1/tenants",
    request_body = v1::CreateTenantRequest,
    responses((status = 200, description = "The tenant", body = v1::Tenant)),
)]
async fn create_tenant(
    State(api): State<Api>,
    call: Call,
    Json(request): Json<v1::CreateTenantRequest>,
) -> Result<Answer<v1::Tenant>> {
    answer(api.create_tenant(&call, request).await)
}

/// Lists tenants.
#[utoipa::path(
    get, path = "/v1/tenants",
    responses((status = 200, description = "All of them", body = v1::ListTenantsResponse)),
)]
async fn list_tenants(
    State(api): State<Api>,
    call: Call,
) -> Result<Answer<v1::ListTenantsResponse>> {
    answer(api.list_tenants(&call, v1::ListTenantsRequest {}).await)
}

/// Looks at a tenant: its quotas and what of them is in use.
#[utoipa::path(
    get, path = "/v1/tenants/{tenant}",
    responses((status = 200, description = "The tenant", body = v1::Tenant)),
)]
async fn get_tenant(
    State(api): State<Api>,
    call: Call,
    Path(tenant): Path<String>,
) -> Result<Answer<v1::Tenant>> {
    answer(api.get_tenant(&call, v1::GetTenantRequest { tenant }).await)
}

/// Removes a tenant that has no sandboxes.
#[utoipa::path(
    delete, path = "/v1/tenants/{tenant}",
    responses((status = 200, description = "It is gone", body = v1::RemoveTenantResponse)),
)]
async fn remove_tenant(
    State(api): State<Api>,
    call: Call,
    Path(tenant): Path<String>,
) -> Result<Answer<v1::RemoveTenantResponse>> {
    answer(api.remove_tenant(&call, v1::RemoveTenantRequest { tenant }).await)
}

/// Replaces a tenant's quotas.
#[utoipa::path(
    put, path = "/v1/tenants/{tenant}/quotas",
    request_body = v1::SetQuotasRequest,
    responses((status = 200, description = "The tenant", body = v1::Tenant)),
)]
async fn set_quotas(
    State(api): State<Api>,
    call: Call,
    Path(tenant): Path<String>,
    Json(mut request): Json<v1::SetQuotasRequest>,
) -> Result<Answer<v1::Tenant>> {
    request.tenant = same("tenant", tenant, &request.tenant)?;
    answer(api.set_quotas(&call, request).await)
}
