//! Opening and closing: one [`Egress`] per server, one [`Gate`] per sandbox.

use std::sync::Arc;

use tokio::runtime::Handle;

use crate::flow::Judge;
use crate::{Approver, Authority, Doors, Identity, Recorder, Rules, Secrets, Settings};

/// What all gates of a server share.
pub struct Egress {
    settings: Arc<Settings>,
    recorder: Arc<dyn Recorder>,
    approver: Arc<dyn Approver>,
    secrets: Arc<dyn Secrets>,
}

/// The open doors of one sandbox. Dropping it closes them and cuts every flow.
pub struct Gate {
    judge: Arc<Judge>,
}

/// What a gate has done and is doing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Flows and requests that are open now.
    pub open: usize,
}

impl Egress {
    #[must_use]
    pub fn new(
        settings: Settings,
        recorder: Arc<dyn Recorder>,
        approver: Arc<dyn Approver>,
        secrets: Arc<dyn Secrets>,
    ) -> Self {
        Self { settings: Arc::new(settings), recorder, approver, secrets }
    }

    /// Serves a sandbox's doors until the gate is closed. Must be called within a tokio runtime.
    #[must_use]
    pub fn open(
        &self,
        identity: Identity,
        doors: Doors,
        rules: Rules,
        _authority: Option<Authority>,
    ) -> Gate {
        let judge = Arc::new(Judge::new(
            identity,
            rules,
            Arc::clone(&self.recorder),
            Arc::clone(&self.approver),
            Arc::clone(&self.secrets),
        ));
        let _ = (Handle::current(), doors, &self.settings);
        Gate { judge }
    }
}

impl Gate {
    #[must_use]
    pub fn identity(&self) -> &Identity {
        self.judge.identity()
    }

    /// New rules. Flows that they no longer allow are cut at once.
    pub fn set_rules(&self, rules: Rules) {
        self.judge.set_rules(rules);
    }

    #[must_use]
    pub fn rules(&self) -> Arc<Rules> {
        self.judge.rules()
    }

    #[must_use]
    pub fn counts(&self) -> Counts {
        Counts { open: self.judge.live().count() }
    }

    /// Closes the doors and cuts every flow.
    pub fn close(self) {}
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.judge.live().closed().cancel();
    }
}
