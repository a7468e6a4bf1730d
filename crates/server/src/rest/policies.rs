//! Policies that are kept by name, and those that are learned from what sandboxes did.

use axum::extract::State;
use belljar_api::v1;
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{LargeJson, Path, Query};
use super::{Answer, answer, same};
use crate::api::Api;
use crate::call::Call;
use crate::problem::Result;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(list_policies))
        .routes(routes!(put_policy, get_policy, remove_policy))
        .routes(routes!(learn_policy))
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct ListQuery {
    /// Every version of this policy.
    name: Option<String>,
    /// For administrators: whose policies.
    tenant: Option<String>,
}

#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct TenantQuery {
    /// For administrators: whose policy.
    tenant: Option<String>,
}

/// Lists policies by name, each in its newest version.
#[utoipa::path(
    get, path = "/v1/policies", params(ListQuery),
    responses((status = 200, description = "All of them", body = v1::ListPoliciesResponse)),
)]
async fn list_policies(
    State(api): State<Api>,
    call: Call,
    Query(query): Query<ListQuery>,
) -> Result<Answer<v1::ListPoliciesResponse>> {
    let request = v1::ListPoliciesRequest { name: query.name, tenant: query.tenant };
    answer(api.list_policies(&call, request).await)
}

/// Keeps a policy; each change is a new version.
#[utoipa::path(
    put, path = "/v1/policies/{policy}",
    request_body = v1::PutPolicyRequest,
    responses((status = 200, description = "The version", body = v1::Policy)),
)]
async fn put_policy(
    State(api): State<Api>,
    call: Call,
    Path(policy): Path<String>,
    LargeJson(mut request): LargeJson<v1::PutPolicyRequest>,
) -> Result<Answer<v1::Policy>> {
    request.name = same("name", policy, &request.name)?;
    answer(api.put_policy(&call, request).await)
}

/// Looks at a policy, as `name` or `name@version`.
#[utoipa::path(
    get, path = "/v1/policies/{policy}", params(TenantQuery),
    responses((status = 200, description = "The version with its documents", body = v1::Policy)),
)]
async fn get_policy(
    State(api): State<Api>,
    call: Call,
    Path(policy): Path<String>,
    Query(query): Query<TenantQuery>,
) -> Result<Answer<v1::Policy>> {
    let request = v1::GetPolicyRequest { name: policy, tenant: query.tenant };
    answer(api.get_policy(&call, request).await)
}

/// Removes a policy, or with `name@version` one version of it; sandboxes that run under it go on.
#[utoipa::path(
    delete, path = "/v1/policies/{policy}", params(TenantQuery),
    responses((status = 200, description = "It is gone", body = v1::RemovePolicyResponse)),
)]
async fn remove_policy(
    State(api): State<Api>,
    call: Call,
    Path(policy): Path<String>,
    Query(query): Query<TenantQuery>,
) -> Result<Answer<v1::RemovePolicyResponse>> {
    let request = v1::RemovePolicyRequest { name: policy, tenant: query.tenant };
    answer(api.remove_policy(&call, request).await)
}

/// The smallest policy that allows what a sandbox did, for review.
#[utoipa::path(
    get, path = "/v1/sandboxes/{sandbox}/policy/learned",
    responses((status = 200, description = "A document", body = v1::LearnPolicyResponse)),
)]
async fn learn_policy(
    State(api): State<Api>,
    call: Call,
    Path(sandbox): Path<String>,
) -> Result<Answer<v1::LearnPolicyResponse>> {
    answer(api.learn_policy(&call, v1::LearnPolicyRequest { sandbox }).await)
}
