//! Webhooks: who wants to be told of events, and how far they have been told.
//!
//! Each webhook gets the events it asked for one after the other, in order. What was delivered is remembered, so that
//! after a restart telling goes on where it stopped; an event may be told twice and is never left out unless whoever
//! delivers gives up on it. Not here: HTTP.

use std::sync::Arc;
use std::time::SystemTime;

use belljar_codes::Code;
use belljar_policy::TenantId;

use crate::engine::Inner;
use crate::secret::Secret;
use crate::{Engine, Error, Event, EventKind, Result, Scope, random, tenants};

const MAX_URL: usize = 2048;
/// Who can guess the secret can tell the receiver anything.
const MIN_SECRET: usize = 16;
const MAX_SECRET: usize = 512;

/// Webhooks of one tenant, and of those that are told of everybody's events. Each costs a look at every event.
const MAX_WEBHOOKS: u64 = 100;

/// A webhook to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewWebhook {
    pub url: String,
    /// What deliveries are signed with; one is made where none is given.
    pub secret: Option<Secret>,
    /// Empty: all.
    pub events: Vec<EventKind>,
    /// Whose events; `None`: those of everybody in scope.
    pub tenant: Option<TenantId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Webhook {
    pub id: String,
    pub tenant: Option<TenantId>,
    pub url: String,
    pub secret: Secret,
    /// Empty: all.
    pub events: Vec<EventKind>,
    pub created_at: SystemTime,
    /// Everything up to this event was delivered, given up on, or is not for it.
    pub cursor: u64,
    /// How often the next event could not be delivered.
    pub attempts: u32,
    pub retry_at: Option<SystemTime>,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

/// The webhooks of a state directory that the scope lets see.
#[derive(Clone)]
pub struct Webhooks {
    inner: Arc<Inner>,
    scope: Scope,
}

impl Engine {
    /// Who wants to be told of events.
    #[must_use]
    pub fn webhooks(&self) -> Webhooks {
        Webhooks { inner: Arc::clone(&self.inner), scope: self.scope.clone() }
    }
}

impl Webhooks {
    /// Makes a webhook that is told of what happens from now on.
    pub async fn create(&self, new: NewWebhook) -> Result<Webhook> {
        self.may_manage()?;
        check_url(&new.url)?;
        let secret = new.secret.unwrap_or_else(Secret::random);
        if !(MIN_SECRET..=MAX_SECRET).contains(&secret.expose().len()) {
            return Err(Error::new(Code::InvalidArgument, "the webhook's secret cannot be used")
                .with_remedy(format!(
                    "use {MIN_SECRET} to {MAX_SECRET} characters: `openssl rand -hex 32` makes some"
                )));
        }
        let tenant = match (&self.scope, new.tenant) {
            (Scope::All, tenant) => tenant,
            (scope, None) => Some(scope.tenant()),
            (scope, Some(tenant)) if scope.tenant() == tenant => Some(tenant),
            (_, Some(tenant)) => return Err(tenants::not_found(&tenant)),
        };
        if let Some(tenant) = &tenant
            && self.inner.store.tenant(tenant).await?.is_none()
        {
            return Err(tenants::not_found(tenant));
        }
        let webhook = Webhook {
            id: random::token()[..12].to_owned(),
            tenant,
            url: new.url,
            secret,
            events: new.events,
            created_at: SystemTime::now(),
            cursor: 0,
            attempts: 0,
            retry_at: None,
            error: None,
        };
        self.inner.store.add_webhook(&webhook, MAX_WEBHOOKS).await
    }

    /// Those in scope, oldest first.
    pub async fn list(&self) -> Result<Vec<Webhook>> {
        self.may_manage()?;
        let webhooks = self.inner.store.webhooks().await?;
        Ok(webhooks.into_iter().filter(|webhook| self.sees(webhook)).collect())
    }

    pub async fn get(&self, id: &str) -> Result<Webhook> {
        let found = self.list().await?.into_iter().find(|webhook| webhook.id == id);
        found.ok_or_else(|| {
            let shown = belljar_policy::shown(id);
            Error::new(Code::WebhookNotFound, format!("there is no webhook `{shown}`"))
                .with_remedy("`belljar webhooks list` shows those that exist")
        })
    }

    pub async fn remove(&self, id: &str) -> Result<()> {
        let webhook = self.get(id).await?;
        self.inner.store.remove_webhook(&webhook.id).await
    }

    /// Whether anybody wants to be told of anything.
    pub async fn any(&self) -> Result<bool> {
        self.scope.administers()?;
        self.inner.store.any_webhook().await
    }

    /// For each webhook that may be tried now the next event that it has not been told of.
    pub async fn due(&self, now: SystemTime) -> Result<Vec<(Webhook, Event)>> {
        self.scope.administers()?;
        let mut due = Vec::new();
        for webhook in self.inner.store.webhooks_behind(now).await? {
            if let Some(event) = self.inner.store.next_for(&webhook).await? {
                due.push((webhook, event));
            }
        }
        Ok(due)
    }

    /// The event was delivered: the next one may follow.
    pub async fn delivered(&self, id: &str, seq: u64) -> Result<()> {
        self.scope.administers()?;
        self.inner.store.webhook_told(id, seq, None).await
    }

    /// The event was not delivered. It is due again at `retry_at`; without that it is given up, and the next one follows.
    pub async fn failed(
        &self,
        id: &str,
        seq: u64,
        error: &str,
        retry_at: Option<SystemTime>,
    ) -> Result<()> {
        self.scope.administers()?;
        match retry_at {
            Some(at) => self.inner.store.webhook_failed(id, error, at).await,
            None => self.inner.store.webhook_told(id, seq, Some(error)).await,
        }
    }

    fn may_manage(&self) -> Result<()> {
        match &self.scope {
            Scope::All | Scope::Tenant(_) => Ok(()),
            Scope::Sandbox { id, .. } => Err(Error::new(
                Code::PermissionDenied,
                format!("this caller may use sandbox `{id}` and no webhooks"),
            )
            .with_remedy("use a key of the tenant")),
        }
    }

    fn sees(&self, webhook: &Webhook) -> bool {
        match &self.scope {
            Scope::All => true,
            scope => webhook.tenant == Some(scope.tenant()),
        }
    }
}

impl std::fmt::Debug for Webhooks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Webhooks").field("scope", &self.scope).finish_non_exhaustive()
    }
}

fn check_url(url: &str) -> Result<()> {
    let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
    let named = host.is_some_and(|rest| !rest.is_empty() && !rest.starts_with('/'));
    if named && url.len() <= MAX_URL && url.bytes().all(|b| b.is_ascii_graphic()) {
        return Ok(());
    }
    let shown = belljar_policy::shown(url);
    Err(Error::new(Code::InvalidArgument, format!("`{shown}` is not the address of a webhook"))
        .with_remedy("use a URL that begins with `https://` or `http://`"))
}
