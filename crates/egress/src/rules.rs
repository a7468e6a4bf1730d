//! What a sandbox may do on the network, as the doors ask it.

use std::time::Duration;

use belljar_policy::document::{Budget, Credential, Document, FlowRules, NetworkSection};
use belljar_policy::{NetworkMode, NetworkPolicy};
use ipnet::IpNet;

use crate::Callback;

/// How long a rule with the verdict `ask` waits where its document does not say.
const ASK_WAIT: Duration = Duration::from_secs(60);
/// Longer waits would let a sandbox pile up connections that nobody looks at.
const MAX_ASK_WAIT: Duration = Duration::from_secs(600);

/// The network rules of one sandbox.
#[derive(Clone, Debug)]
pub struct Rules {
    pub mode: NetworkMode,
    pub flows: FlowRules,
    pub credentials: Vec<Credential>,
    /// For the sandbox as a whole; budgets of a rule are with the rule.
    pub budgets: Vec<Budget>,
    /// Bytes per second, in each direction, for the sandbox as a whole.
    pub bandwidth: Option<u64>,
    /// Flows that nothing names wait this long for an approval; without it they are denied at once.
    pub ask: Option<Duration>,
    /// How long flows wait whose rule says `ask`.
    pub ask_wait: Duration,
    /// What a program decides about.
    pub callback: Callback,
    /// Addresses that are not public and may be reached all the same (`--allow-cidr`). In an allowlist they lift the check of the
    /// address only: a connection needs an allowed name nevertheless. The host's own addresses and cloud metadata
    /// count only when named as a single address.
    pub cidrs: Vec<IpNet>,
}

impl Rules {
    #[must_use]
    pub fn from_document(document: &Document) -> Self {
        let section = document.network.clone().unwrap_or_default();
        let wait = section.ask_seconds.map_or(ASK_WAIT, Duration::from_secs);
        Self {
            mode: document.network_mode(),
            flows: FlowRules::new(document),
            credentials: document.credentials.clone(),
            budgets: section.budgets,
            bandwidth: None,
            ask: None,
            ask_wait: wait.min(MAX_ASK_WAIT),
            callback: Callback::default(),
            cidrs: Vec::new(),
        }
    }

    /// The rules that the options `--network`, `--allow` and `--profile` mean.
    #[must_use]
    pub fn from_policy(policy: &NetworkPolicy) -> Self {
        Self::from_document(&Document {
            network_allowlist: policy.allow.clone(),
            network: Some(NetworkSection { mode: Some(policy.mode), ..NetworkSection::default() }),
            ..Document::default()
        })
    }

    /// Whether requests are looked into: a sandbox with such rules must trust an [`Authority`](crate::Authority).
    #[must_use]
    pub fn inspects(&self) -> bool {
        let shown = self.callback.connections || self.callback.requests;
        shown || self.flows.needs_http() || !self.credentials.is_empty()
    }

    /// Nothing may be reached.
    #[must_use]
    pub fn none() -> Self {
        Self::from_policy(&NetworkPolicy::default())
    }
}
