//! Network questions: may this flow, or this request, go to that host?
//!
//! The rules of the `network` section in order, then the hosts of `network_allowlist`, then `network_default`.

use super::{Document, HostMatch, NetworkDefault, NetworkRule, NetworkVerdict, Transport};
use crate::{HostPattern, NetworkMode};

/// What is asked: a connection, or one request on it.
#[derive(Clone, Copy, Debug)]
pub struct Flow<'a> {
    /// The verified name of the destination.
    pub host: &'a str,
    pub port: u16,
    pub transport: Transport,
    /// The method and the canonical path, once there is a request.
    pub request: Option<(&'a str, &'a str)>,
}

/// The answer.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FlowDecision<'r> {
    /// A rule decides.
    Rule(&'r NetworkRule),
    /// An entry of `network_allowlist` allows it.
    Listed(&'r HostPattern),
    /// A rule may fit, but only a request can tell: look inside.
    Inspect,
    /// Nothing fits.
    Default(NetworkVerdict),
}

/// The network rules of one document, ready to be asked.
#[derive(Clone, Debug)]
pub struct FlowRules {
    rules: Vec<NetworkRule>,
    listed: Vec<HostPattern>,
    default: NetworkVerdict,
}

impl FlowRules {
    #[must_use]
    pub fn new(document: &Document) -> Self {
        let mode = document.network_mode();
        let rules = document.network.as_ref().map(|network| network.rules.clone());
        Self {
            rules: if mode == NetworkMode::None { Vec::new() } else { rules.unwrap_or_default() },
            listed: match mode {
                NetworkMode::None => Vec::new(),
                _ => document.network_allowlist.clone(),
            },
            default: match mode {
                NetworkMode::Full => NetworkVerdict::Allow,
                NetworkMode::None | NetworkMode::Allowlist => NetworkVerdict::Deny,
            },
        }
    }

    /// Whether some rule can only be judged with a request at hand.
    #[must_use]
    pub fn needs_http(&self) -> bool {
        self.rules.iter().any(NetworkRule::needs_http)
            || self.listed.iter().any(|pattern| pattern.path().is_some())
    }

    #[must_use]
    pub fn judge(&self, flow: &Flow<'_>) -> FlowDecision<'_> {
        for rule in &self.rules {
            let reached = rule.host.matches(flow.host)
                && rule.transport == flow.transport
                && rule.port.admits(|port| *port == flow.port);
            if !reached {
                continue;
            }
            match flow.request {
                _ if !rule.needs_http() => return FlowDecision::Rule(rule),
                None => return FlowDecision::Inspect,
                Some((method, path)) => {
                    let fits = rule.method.admits(|known| known.as_str() == method)
                        && rule.path.admits(|pattern| pattern.matches(path));
                    if fits {
                        return FlowDecision::Rule(rule);
                    }
                }
            }
        }
        for pattern in &self.listed {
            let reached = flow.transport == Transport::Tcp
                && pattern.matches(flow.host)
                && pattern.port().is_none_or(|port| port == flow.port);
            match (reached, pattern.path(), flow.request) {
                (false, ..) => {}
                (true, None, _) => return FlowDecision::Listed(pattern),
                (true, Some(_), None) => return FlowDecision::Inspect,
                (true, Some(prefix), Some((_, path))) if is_below(prefix, path) => {
                    return FlowDecision::Listed(pattern);
                }
                (true, Some(_), Some(_)) => {}
            }
        }
        FlowDecision::Default(match flow.transport {
            Transport::Tcp => self.default,
            // Only rules that name it open UDP, even where all of TCP is open.
            Transport::Udp => NetworkVerdict::Deny,
        })
    }

    /// Whether a name may be looked up at all: some flow to it could be allowed.
    #[must_use]
    pub fn may_resolve(&self, host: &str) -> bool {
        self.resolution(host).is_some_and(|verdict| verdict != NetworkVerdict::Deny)
    }

    /// The best that a flow to this name can hope for: to be allowed, or only to be asked about, or to be denied by a
    /// rule. None where nothing names it.
    #[must_use]
    pub fn resolution(&self, host: &str) -> Option<NetworkVerdict> {
        let mut best = None;
        for rule in self.rules.iter().filter(|rule| rule.host.matches(host)) {
            if rule.verdict == NetworkVerdict::Allow {
                return Some(NetworkVerdict::Allow);
            }
            if rule.verdict == NetworkVerdict::Ask || best.is_none() {
                best = Some(rule.verdict);
            }
            // What comes after a rule for every port and request is about UDP at most, which only rules open.
            if rule.port.is_empty() && !rule.needs_http() && rule.transport == Transport::Tcp {
                return best;
            }
        }
        let listed = self.default == NetworkVerdict::Allow
            || self.listed.iter().any(|pattern| pattern.matches(host));
        if listed { Some(NetworkVerdict::Allow) } else { best }
    }
}

/// An entry such as `example.com/v1` means that path and what is below it.
fn is_below(prefix: &str, path: &str) -> bool {
    let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
    path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

impl FlowDecision<'_> {
    #[must_use]
    pub fn verdict(&self) -> Option<NetworkVerdict> {
        match self {
            Self::Rule(rule) => Some(rule.verdict),
            Self::Listed(_) => Some(NetworkVerdict::Allow),
            Self::Default(verdict) => Some(*verdict),
            Self::Inspect => None,
        }
    }
}

impl Document {
    /// How much of the network there is: as written, else what the hosts and the default mean together.
    #[must_use]
    pub fn network_mode(&self) -> NetworkMode {
        if let Some(mode) = self.network.as_ref().and_then(|network| network.mode) {
            return mode;
        }
        let names_hosts =
            !self.network_allowlist.is_empty()
                || self.network.iter().flat_map(|network| &network.rules).any(|rule| {
                    rule.verdict != NetworkVerdict::Deny || rule.host != HostMatch::Any
                });
        match (self.defaults.network_default, names_hosts) {
            (NetworkDefault::Allow, _) => NetworkMode::Full,
            (NetworkDefault::Deny, true) => NetworkMode::Allowlist,
            (NetworkDefault::Deny, false) => NetworkMode::None,
        }
    }
}
