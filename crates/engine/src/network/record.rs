//! What a sandbox may reach, as it is kept with the sandbox.

use std::time::Duration;

use belljar_egress::{Callback, Rules};
use belljar_policy::document::{
    Document, HostMatch, NetworkRule, NetworkVerdict, OneOrMany, Transport,
};
use belljar_policy::{HostPattern, Invalid, NetworkMode};
use serde::{Deserialize, Serialize};

use crate::time::duration_ms;
use crate::{CreateRequest, Result};

/// Texts, because records outlive what they were parsed to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkRecord {
    pub(crate) allow: Vec<String>,
    pub(crate) deny: Vec<String>,
    pub(crate) cidrs: Vec<String>,
    pub(crate) ask_ms: Option<u64>,
    /// Under a policy: only these of its hosts, also when none of them is left.
    pub(crate) narrowed: bool,
    /// What a program that is connected decides about.
    pub(crate) callback_connections: bool,
    pub(crate) callback_requests: bool,
    /// The ports besides DNS to which datagrams may be sent if a program allows it.
    pub(crate) callback_udp: Vec<u16>,
    /// It was made with a network, so that it has doors.
    pub(crate) doors: bool,
}

impl NetworkRecord {
    pub(crate) fn of(request: &CreateRequest) -> Self {
        Self {
            allow: request.network.allow.iter().map(ToString::to_string).collect(),
            deny: Vec::new(),
            cidrs: request.network_cidrs.iter().map(ToString::to_string).collect(),
            ask_ms: request.network_ask.map(duration_ms),
            narrowed: !request.network.allow.is_empty(),
            callback_connections: request.network_callback.connections,
            callback_requests: request.network_callback.requests,
            callback_udp: request.network_callback_udp.clone(),
            doors: request.network.mode != NetworkMode::None,
        }
    }

    /// The mode that is left where nothing else of this is kept. What was open but for some hosts, or for what a program
    /// decides, is a list whose hosts must be named again, and not open.
    pub(crate) fn mode_without_hosts(&self, mode: NetworkMode) -> NetworkMode {
        let has_exceptions =
            !self.deny.is_empty() || self.callback_connections || self.callback_requests;
        match mode {
            NetworkMode::Full if has_exceptions => NetworkMode::Allowlist,
            mode => mode,
        }
    }

    pub(crate) fn callback(&self) -> Callback {
        Callback { connections: self.callback_connections, requests: self.callback_requests }
    }

    /// The rules that the doors of a sandbox follow, under a policy's document if there is one.
    pub(crate) fn rules(&self, mode: NetworkMode, document: Option<&Document>) -> Result<Rules> {
        let mut document = self.document(mode, document)?;
        // Denied hosts come first, so that nothing after them can allow them.
        let denied = self.deny.iter().map(|host| deny(host)).collect::<Result<Vec<_>, _>>()?;
        let section = document.network.get_or_insert_default();
        section.rules.splice(0..0, denied.into_iter().flatten());
        let mut rules = Rules::from_document(&document);
        for cidr in &self.cidrs {
            rules.cidrs.push(super::change::cidr(cidr)?);
        }
        rules.ask = self.ask_ms.map(Duration::from_millis);
        rules.callback = self.callback();
        Ok(rules)
    }

    fn document(&self, mode: NetworkMode, under: Option<&Document>) -> Result<Document> {
        let allow = self.allow.iter().map(|host| HostPattern::parse(host));
        let allow = allow.collect::<Result<Vec<_>, Invalid>>()?;
        let mut document = match under {
            None => Document { network_allowlist: allow, ..Document::default() },
            Some(document) if !self.narrowed => document.clone(),
            // Hosts that were named beside a policy are a choice among what it allows, as far as it allows it.
            Some(document) => document.narrowed_to(&allow),
        };
        document.network.get_or_insert_default().mode = Some(mode);
        Ok(document)
    }
}

/// The ports besides DNS to which datagrams can be sent: a rule of the document, or a program, may allow it.
pub(crate) fn udp_ports(record: &NetworkRecord, document: Option<&Document>) -> Vec<u16> {
    const DNS: u16 = 53;
    let rules = document.and_then(|document| document.network.as_ref());
    let mut ports: Vec<u16> = rules
        .iter()
        .flat_map(|section| &section.rules)
        .filter(|rule| rule.transport == Transport::Udp && rule.verdict != NetworkVerdict::Deny)
        .flat_map(|rule| rule.port.0.iter().copied())
        .chain(record.callback_udp.iter().copied())
        .filter(|port| *port != DNS)
        .collect();
    ports.sort_unstable();
    ports.dedup();
    ports
}

/// Rules that deny a host, over every transport.
fn deny(host: &str) -> Result<[NetworkRule; 2], Invalid> {
    let pattern = HostPattern::parse(host)?;
    let port = OneOrMany(pattern.port().into_iter().collect());
    let name = Some(format!("denied {host}"));
    let rule = |transport| NetworkRule {
        name: name.clone(),
        host: HostMatch::Hosts(pattern.clone()),
        port: port.clone(),
        transport,
        method: OneOrMany::default(),
        path: OneOrMany::default(),
        verdict: NetworkVerdict::Deny,
        budgets: Vec::new(),
        message: String::new(),
    };
    Ok([rule(Transport::Tcp), rule(Transport::Udp)])
}

#[cfg(test)]
mod tests {
    use belljar_policy::document::{Flow, FlowRules, Format};

    use super::*;

    #[test]
    fn hosts_named_beside_a_policy_are_no_more_than_it_allows() {
        let text = "network: { rules: [{ host: a.test, method: GET, verdict: allow },
                    { host: b.test, verdict: allow }] }";
        let document = Document::parse(text, Format::Yaml).unwrap();
        let verdict = |named: &[&str], host: &str, method: &str| {
            let allow = named.iter().map(|host| (*host).to_owned()).collect();
            let narrowed = !named.is_empty();
            let record = NetworkRecord { allow, narrowed, ..NetworkRecord::default() };
            let narrowed = record.document(NetworkMode::Allowlist, Some(&document)).unwrap();
            let request = Some((method, "/"));
            let flow = Flow { host, port: 443, transport: Transport::Tcp, request };
            FlowRules::new(&narrowed).judge(&flow).verdict() == Some(NetworkVerdict::Allow)
        };
        assert!(verdict(&[], "a.test", "GET") && verdict(&[], "b.test", "POST"));
        assert!(verdict(&["a.test"], "a.test", "GET"));
        // Naming the host again opens nothing that its rule keeps closed, and leaves out what was not named.
        assert!(!verdict(&["a.test"], "a.test", "POST"));
        assert!(!verdict(&["a.test"], "b.test", "POST"));
        // Nor does taking the last one away.
        let none = NetworkRecord { narrowed: true, ..NetworkRecord::default() };
        let none = none.document(NetworkMode::Allowlist, Some(&document)).unwrap();
        let flow = Flow { host: "b.test", port: 443, transport: Transport::Tcp, request: None };
        let decision = FlowRules::new(&none).judge(&flow).verdict();
        assert_eq!(decision, Some(NetworkVerdict::Deny));
    }
}
