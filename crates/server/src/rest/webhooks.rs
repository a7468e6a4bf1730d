//! What the server tells others by itself, and the tokens that others show for one sandbox.

use axum::extract::State;
use belljar_api::v1;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::extract::{Json, Path};
use super::{Answer, answer};
use crate::api::Api;
use crate::call::Call;
use crate::problem::Result;

pub(super) fn router() -> OpenApiRouter<Api> {
    OpenApiRouter::new()
        .routes(routes!(create_webhook, list_webhooks))
        .routes(routes!(remove_webhook))
        .routes(routes!(issue_token))
}

/// Has events sent to an address, signed, in order, and again until they are taken.
#[utoipa::path(
    post, path = "/v1/webhooks",
    request_body = v1::CreateWebhookRequest,
    responses((status = 200, description = "The webhook", body = v1::Webhook)),
)]
async fn create_webhook(
    State(api): State<Api>,
    call: Call,
    Json(request): Json<v1::CreateWebhookRequest>,
) -> Result<Answer<v1::Webhook>> {
    answer(api.create_webhook(&call, request).await)
}

/// Lists webhooks and how far they have been told.
#[utoipa::path(
    get, path = "/v1/webhooks",
    responses((status = 200, description = "All of them", body = v1::ListWebhooksResponse)),
)]
async fn list_webhooks(
    State(api): State<Api>,
    call: Call,
) -> Result<Answer<v1::ListWebhooksResponse>> {
    answer(api.list_webhooks(&call, v1::ListWebhooksRequest {}).await)
}

/// Removes a webhook.
#[utoipa::path(
    delete, path = "/v1/webhooks/{webhook}",
    responses((status = 200, description = "It is gone", body = v1::RemoveWebhookResponse)),
)]
async fn remove_webhook(
    State(api): State<Api>,
    call: Call,
    Path(webhook_id): Path<String>,
) -> Result<Answer<v1::RemoveWebhookResponse>> {
    answer(api.remove_webhook(&call, v1::RemoveWebhookRequest { webhook_id }).await)
}

/// Makes a signed token that opens exactly one sandbox, for a time.
#[utoipa::path(
    post, path = "/v1/tokens",
    request_body = v1::IssueTokenRequest,
    responses((status = 200, description = "The token", body = v1::IssueTokenResponse)),
)]
async fn issue_token(
    State(api): State<Api>,
    call: Call,
    Json(request): Json<v1::IssueTokenRequest>,
) -> Result<Answer<v1::IssueTokenResponse>> {
    answer(api.issue_token(&call, request).await)
}
