//! Creating a sandbox once, however often the request arrives.
//!
//! A key is taken in the transaction that reserves the sandbox, so of all that come with it one creates; the others wait
//! for what comes of it. A creation that failed gives its key back, and the next to come tries anew.

use std::sync::Arc;
use std::time::{Duration, Instant};

use belljar_codes::Code;
use belljar_policy::{SandboxId, TenantId};

use crate::create::{Life, create_once};
use crate::destroy::settle;
use crate::engine::Inner;
use crate::fingerprint;
use crate::plan::Plan;
use crate::store::{KeyClaim, Operation, SandboxRecord, State};
use crate::{Asker, CreateRequest, Error, Result, policy};

/// How long another request with the same key may be creating.
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Creates a lasting sandbox, or finds the one that was created with the same key and request.
pub(crate) async fn create(
    inner: &Arc<Inner>,
    asker: &Asker,
    tenant: &TenantId,
    request: &CreateRequest,
    life: Life,
) -> Result<SandboxRecord> {
    let claim = match &request.idempotency_key {
        Some(key) => {
            KeyClaim::check(key)?;
            Some(KeyClaim::new(Operation::Create, key, fingerprint::of_create(request)))
        }
        None => None,
    };
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        if let Some(claim) = &claim
            && let Some(resource) = inner.store.known_key(tenant, claim).await?
        {
            match outcome(inner, &resource).await? {
                Some(record) => return Ok(record),
                None => continue,
            }
        }
        let governed = policy::govern(inner, tenant, request).await?;
        let plan = Plan::new(inner, tenant, &governed).await?;
        let created =
            create_once(inner, asker, tenant, &governed, plan, life, claim.as_ref()).await?;
        // Otherwise somebody took the key between our looking and our making.
        if let Some(record) = created {
            return Ok(record);
        }
    }
    Err(Error::new(
        Code::SandboxNotReady,
        "another request with the same idempotency key has been at work for too long",
    ))
}

/// What came of the creation that has the key. `None`: look again.
async fn outcome(inner: &Arc<Inner>, resource: &str) -> Result<Option<SandboxRecord>> {
    let id = SandboxId::parse(resource)?;
    let record = inner.store.sandbox(&id).await?;
    let record = record.ok_or_else(|| Error::sandbox_gone(id.as_str()))?;
    match record.state {
        State::Creating => {
            // Until it is ready, or its maker has died and it is settled.
            settle(inner, &id).await?;
            tokio::time::sleep(LOOK_AGAIN).await;
            Ok(None)
        }
        State::Failed => Ok(None),
        State::Ready | State::Paused | State::Destroying | State::Destroyed => Ok(Some(record)),
    }
}
