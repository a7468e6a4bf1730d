//! Documents taken together with a caller's own list of hosts: what both allow.

use super::{Document, HostMatch, NetworkRule, NetworkVerdict, OneOrMany};
use crate::{HostPattern, NetworkMode};

impl Document {
    /// Whether the hosts that `pattern` means may be reached, by the list or by some rule. What a rule of the document
    /// denies, it denies in any case.
    #[must_use]
    pub fn names_host(&self, pattern: &HostPattern) -> bool {
        match self.network_mode() {
            NetworkMode::None => false,
            NetworkMode::Full => true,
            NetworkMode::Allowlist => {
                let rules = self.network.iter().flat_map(|network| &network.rules);
                let mut granted = rules.filter(|rule| rule.verdict != NetworkVerdict::Deny);
                granted.any(|rule| narrowed_rule(rule, pattern).is_some())
                    || self.network_allowlist.iter().any(|listed| listed.covers(pattern))
            }
        }
    }

    /// The document as far as `allow` goes: nothing else can be reached, and nothing that the document does not allow.
    #[must_use]
    pub fn narrowed_to(&self, allow: &[HostPattern]) -> Self {
        let mut document = self.clone();
        let full = self.network_mode() == NetworkMode::Full;
        let section = document.network.get_or_insert_default();
        section.mode = match self.network_mode() {
            NetworkMode::None => Some(NetworkMode::None),
            NetworkMode::Allowlist | NetworkMode::Full => Some(NetworkMode::Allowlist),
        };
        let narrow = |rule: &NetworkRule| match rule.verdict {
            NetworkVerdict::Deny => vec![rule.clone()],
            NetworkVerdict::Allow | NetworkVerdict::Ask => {
                allow.iter().filter_map(|pattern| narrowed_rule(rule, pattern)).collect()
            }
        };
        section.rules = section.rules.iter().flat_map(narrow).collect();
        document.network_allowlist = match full {
            true => allow.to_vec(),
            false => self
                .network_allowlist
                .iter()
                .flat_map(|listed| allow.iter().filter_map(|pattern| listed.shared(pattern)))
                .collect(),
        };
        document
    }
}

/// The part of a rule that is about hosts which `pattern` means.
fn narrowed_rule(rule: &NetworkRule, pattern: &HostPattern) -> Option<NetworkRule> {
    // A path of the list cannot be put into a rule that has paths of its own.
    if pattern.path().is_some() {
        return None;
    }
    let hosts = pattern.only_host();
    let host = match &rule.host {
        HostMatch::Any => hosts,
        HostMatch::Hosts(own) => own.shared(&hosts)?,
    };
    let port = match pattern.port() {
        None => rule.port.clone(),
        Some(port) if rule.port.admits(|own| *own == port) => OneOrMany(vec![port]),
        Some(_) => return None,
    };
    Some(NetworkRule { host: HostMatch::Hosts(host), port, ..rule.clone() })
}

#[cfg(test)]
mod tests {
    use super::super::{Flow, FlowRules, Format, Transport};
    use super::*;

    fn document(text: &str) -> Document {
        Document::parse(text, Format::Yaml).unwrap()
    }

    fn patterns(texts: &[&str]) -> Vec<HostPattern> {
        texts.iter().map(|text| HostPattern::parse(text).unwrap()).collect()
    }

    fn verdict(document: &Document, host: &str, port: u16) -> NetworkVerdict {
        let flow = Flow { host, port, transport: Transport::Tcp, request: None };
        FlowRules::new(document).judge(&flow).verdict().unwrap()
    }

    const TEXT: &str = "
network_allowlist: [pypi.org, '*.example.com']
network:
  rules:
    - {host: secret.example.com, verdict: deny}
    - {host: '*.github.com', port: [443, 22], verdict: allow}
";

    #[test]
    fn both_must_allow() {
        let whole = document(TEXT);
        let check = |allow: &[&str], host: &str, port: u16, allowed: bool| {
            let narrowed = whole.narrowed_to(&patterns(allow));
            let expected = if allowed { NetworkVerdict::Allow } else { NetworkVerdict::Deny };
            assert_eq!(verdict(&narrowed, host, port), expected, "{allow:?} {host}:{port}");
        };
        check(&["pypi.org"], "pypi.org", 443, true);
        check(&["pypi.org"], "a.example.com", 443, false);
        check(&["a.example.com"], "a.example.com", 443, true);
        check(&["a.example.com"], "b.example.com", 443, false);
        check(&["*.example.com"], "secret.example.com", 443, false);
        check(&["evil.net"], "evil.net", 443, false);
        check(&["api.github.com"], "api.github.com", 443, true);
        check(&["api.github.com"], "other.github.com", 443, false);
        check(&["api.github.com:22"], "api.github.com", 22, true);
        check(&["api.github.com:22"], "api.github.com", 443, false);
        check(&["api.github.com:80"], "api.github.com", 80, false);
    }

    #[test]
    fn all_of_the_network_becomes_the_list() {
        let whole = document("defaults: {network_default: allow}");
        let narrowed = whole.narrowed_to(&patterns(&["pypi.org"]));
        assert_eq!(verdict(&narrowed, "pypi.org", 443), NetworkVerdict::Allow);
        assert_eq!(verdict(&narrowed, "evil.net", 443), NetworkVerdict::Deny);
    }

    #[test]
    fn what_is_named() {
        let whole = document(TEXT);
        let named = |text| whole.names_host(&HostPattern::parse(text).unwrap());
        for text in
            ["pypi.org", "a.example.com", "*.example.com", "x.github.com", "x.github.com:22"]
        {
            assert!(named(text), "{text}");
        }
        for text in ["evil.net", "example.com", "x.github.com:80"] {
            assert!(!named(text), "{text}");
        }
        let none = document("name: x");
        assert!(!none.names_host(&HostPattern::parse("pypi.org").unwrap()));
    }
}
