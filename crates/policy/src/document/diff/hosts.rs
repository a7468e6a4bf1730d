//! Which hosts become reachable and which no longer are.

use super::{Changes, Effect, Subject};
use crate::document::{
    Document, Flow, FlowRules, HostMatch, NetworkRule, NetworkVerdict, Transport,
};
use crate::{HostPattern, NetworkMode};

const HTTPS: u16 = 443;

pub(super) fn compare(old: &Document, new: &Document, changes: &mut Changes) {
    let mut named = probes(old);
    named.extend(probes(new));
    let (before, after) = (FlowRules::new(old), FlowRules::new(new));
    for probe in &named {
        let (before, after) = (probe.ask(&before), probe.ask(&after));
        if before == after {
            continue;
        }
        let wider = rank(after) > rank(before);
        let text = match after {
            NetworkVerdict::Allow => format!("{} becomes reachable", probe.words),
            NetworkVerdict::Ask => format!("{} is now asked about", probe.words),
            NetworkVerdict::Deny => format!("{} is no longer reachable", probe.words),
        };
        changes.turn(Subject::Host, wider, text);
    }
    let (before, after) = (old.network_mode(), new.network_mode());
    if (before == NetworkMode::Full) != (after == NetworkMode::Full) {
        let text = match after {
            NetworkMode::Full => "hosts that nothing names become reachable",
            _ => "hosts that nothing names are no longer reachable",
        };
        changes.turn(Subject::Host, after == NetworkMode::Full, text.to_owned());
    }
    if old.network != new.network || old.defaults.network_default != new.defaults.network_default {
        let text = format!("the network section changes (mode `{before}`, then `{after}`)");
        changes.add(Subject::Host, Effect::Other, text);
    }
    for entry in unlike(&old.network_allowlist, &new.network_allowlist) {
        let added = new.network_allowlist.contains(entry);
        let verb = if added { "gains" } else { "loses" };
        changes.add(Subject::Host, Effect::Other, format!("network_allowlist {verb} `{entry}`"));
    }
}

fn unlike<'a>(old: &'a [HostPattern], new: &'a [HostPattern]) -> Vec<&'a HostPattern> {
    let only = |these: &'a [HostPattern], those: &'a [HostPattern]| {
        these.iter().filter(move |entry| !those.contains(entry))
    };
    only(old, new).chain(only(new, old)).collect()
}

const fn rank(verdict: NetworkVerdict) -> u8 {
    match verdict {
        NetworkVerdict::Deny => 0,
        NetworkVerdict::Ask => 1,
        NetworkVerdict::Allow => 2,
    }
}

/// A flow that stands for what an entry names.
struct Probe {
    words: String,
    host: String,
    port: u16,
    transport: Transport,
    method: String,
    path: String,
}

impl Probe {
    fn ask(&self, rules: &FlowRules) -> NetworkVerdict {
        let request = Some((self.method.as_str(), self.path.as_str()));
        let flow = Flow { host: &self.host, port: self.port, transport: self.transport, request };
        rules.judge(&flow).verdict().unwrap_or(NetworkVerdict::Deny)
    }
}

fn probes(document: &Document) -> Vec<Probe> {
    let listed = document.network_allowlist.iter().map(|pattern| Probe {
        words: format!("host `{pattern}`"),
        host: sample(pattern),
        port: pattern.port().unwrap_or(HTTPS),
        transport: Transport::Tcp,
        method: "GET".to_owned(),
        path: pattern.path().unwrap_or("/").to_owned(),
    });
    let rules = document.network.iter().flat_map(|network| &network.rules);
    listed.chain(rules.flat_map(of_rule)).collect()
}

fn of_rule(rule: &NetworkRule) -> Vec<Probe> {
    let HostMatch::Hosts(pattern) = &rule.host else { return Vec::new() };
    let or = |list: Vec<String>, otherwise: &str| {
        if list.is_empty() { vec![otherwise.to_owned()] } else { list }
    };
    let methods = or(rule.method.0.iter().map(ToString::to_string).collect(), "GET");
    let paths = or(rule.path.0.iter().map(ToString::to_string).collect(), "/");
    let ports = if rule.port.is_empty() { vec![HTTPS] } else { rule.port.0.clone() };
    let mut probes = Vec::new();
    for method in &methods {
        for path in &paths {
            for port in &ports {
                let mut words = format!("host `{pattern}`");
                if !rule.port.is_empty() {
                    words.push_str(&format!(" port {port}"));
                }
                if rule.needs_http() {
                    words.push_str(&format!(" for {method} {path}"));
                }
                probes.push(Probe {
                    words,
                    host: sample(pattern),
                    port: *port,
                    transport: rule.transport,
                    method: method.clone(),
                    path: path.replace('*', "x"),
                });
            }
        }
    }
    probes
}

fn sample(pattern: &HostPattern) -> String {
    let below = if pattern.is_wildcard() { "x." } else { "" };
    format!("{below}{}", pattern.host())
}
