//! Addresses that are told of events.

use belljar_api::v1;
use belljar_engine::{NewWebhook, Secret, Webhook};

use super::Api;
use crate::action;
use crate::call::Call;
use crate::convert::{self, required, timestamp};
use crate::problem::{Problem, Result};
use crate::webhook;

impl Api {
    /// Of an administrator: told of what happens to everybody. Otherwise: of what happens in the caller's tenant.
    pub async fn create_webhook(
        &self,
        call: &Call,
        request: v1::CreateWebhookRequest,
    ) -> Result<v1::Webhook> {
        let work = async {
            let url = required("url", &request.url)?.to_owned();
            webhook::check(&url)?;
            let secret = required("secret", &request.secret)?;
            let events = request.kinds.iter().map(|kind| {
                convert::kind_of(*kind)
                    .ok_or_else(|| Problem::invalid(format!("there is no kind of event {kind}")))
            });
            let new = NewWebhook {
                url,
                secret: Some(Secret::new(secret)),
                events: events.collect::<Result<_>>()?,
                tenant: None,
            };
            let made = self.engine(call).webhooks().create(new).await?;
            call.note("webhook", &made.id);
            Ok(wire(&made))
        };
        self.act(call, action::CREATE_WEBHOOK, &request.url, work).await
    }

    pub async fn list_webhooks(
        &self,
        call: &Call,
        _request: v1::ListWebhooksRequest,
    ) -> Result<v1::ListWebhooksResponse> {
        let work = async {
            let webhooks = self.engine(call).webhooks().list().await?;
            Ok(v1::ListWebhooksResponse { webhooks: webhooks.iter().map(wire).collect() })
        };
        self.act(call, action::LIST_WEBHOOKS, "", work).await
    }

    pub async fn remove_webhook(
        &self,
        call: &Call,
        request: v1::RemoveWebhookRequest,
    ) -> Result<v1::RemoveWebhookResponse> {
        let work = async {
            let id = required("webhook_id", &request.webhook_id)?;
            let webhooks = self.engine(call).webhooks();
            if let Some(tenant) = webhooks.get(id).await?.tenant {
                call.belongs_to(&tenant);
            }
            webhooks.remove(id).await?;
            Ok(v1::RemoveWebhookResponse {})
        };
        self.act(call, action::REMOVE_WEBHOOK, &request.webhook_id, work).await
    }
}

/// Without its secret.
fn wire(webhook: &Webhook) -> v1::Webhook {
    let kinds = webhook.events.iter().map(|kind| convert::kind(*kind).into());
    v1::Webhook {
        webhook_id: webhook.id.clone(),
        url: webhook.url.clone(),
        tenant: webhook.tenant.as_ref().map(ToString::to_string).unwrap_or_default(),
        kinds: kinds.collect(),
        created_at: Some(timestamp(webhook.created_at)),
        delivered_seq: webhook.cursor,
        failures: webhook.attempts,
        last_error: webhook.error.clone(),
    }
}
