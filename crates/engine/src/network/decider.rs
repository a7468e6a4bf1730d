//! The program that decides about networks, once there is one.
//!
//! Doors are opened before whoever serves this engine says who decides; until then, and where nobody does, the answer is no.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use belljar_egress::{
    Connecting, Decider, Decision, Handled, HandledRequest, Identity, NoDecider, SecretError,
};
use belljar_policy::SecretValue;

/// Asks who decides. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Deciding(Arc<OnceLock<Arc<dyn Decider>>>);

impl Deciding {
    /// The first one that is given decides.
    pub(crate) fn set(&self, decider: Arc<dyn Decider>) {
        let _ = self.0.set(decider);
    }

    fn decider(&self) -> &dyn Decider {
        self.0.get().map_or(&NoDecider, |decider| &**decider)
    }
}

#[async_trait]
impl Decider for Deciding {
    fn is_there(&self, identity: &Identity) -> bool {
        self.decider().is_there(identity)
    }

    async fn connection(
        &self,
        identity: &Identity,
        asked: &Connecting,
        wait: Duration,
    ) -> Decision {
        self.decider().connection(identity, asked, wait).await
    }

    async fn request(&self, identity: &Identity, request: HandledRequest<'_>) -> Handled {
        self.decider().request(identity, request).await
    }

    async fn secret(&self, identity: &Identity, name: &str) -> Result<SecretValue, SecretError> {
        self.decider().secret(identity, name).await
    }
}
