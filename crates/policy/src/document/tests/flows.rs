use super::*;
use crate::NetworkMode;
use crate::document::{Flow, FlowDecision, FlowRules, NetworkVerdict, Transport};

const NETWORK: &str = "
network_allowlist: [pypi.org, '*.files.org:8443', 'docs.org/public']
network:
  rules:
    - {host: api.example.com, method: GET, path: /v1/*, verdict: allow}
    - {host: api.example.com, verdict: ask}
    - {host: '*.pypi.org', verdict: deny}
    - {host: time.example.com, transport: udp, port: 123, verdict: allow}
";

fn ask(host: &str, port: u16, request: Option<(&str, &str)>) -> Option<NetworkVerdict> {
    let rules = FlowRules::new(&document(NETWORK));
    rules.judge(&Flow { host, port, transport: Transport::Tcp, request }).verdict()
}

#[test]
fn rules_then_list_then_default() {
    use NetworkVerdict::{Allow, Ask, Deny};
    assert_eq!(ask("api.example.com", 443, None), None);
    assert_eq!(ask("api.example.com", 443, Some(("GET", "/v1/a"))), Some(Allow));
    assert_eq!(ask("api.example.com", 443, Some(("GET", "/v1"))), Some(Ask));
    assert_eq!(ask("api.example.com", 443, Some(("GET", "/v10/a"))), Some(Ask));
    assert_eq!(ask("api.example.com", 443, Some(("POST", "/v1/a"))), Some(Ask));
    assert_eq!(ask("pypi.org", 443, None), Some(Allow));
    assert_eq!(ask("x.pypi.org", 443, None), Some(Deny));
    assert_eq!(ask("a.files.org", 8443, None), Some(Allow));
    assert_eq!(ask("a.files.org", 443, None), Some(Deny));
    assert_eq!(ask("docs.org", 443, None), None);
    assert_eq!(ask("docs.org", 443, Some(("GET", "/public/a"))), Some(Allow));
    assert_eq!(ask("docs.org", 443, Some(("GET", "/publicity"))), Some(Deny));
    assert_eq!(ask("other.org", 443, None), Some(Deny));
}

#[test]
fn udp_only_where_a_rule_names_it() {
    let rules = FlowRules::new(&document(NETWORK));
    let open = FlowRules::new(&document("defaults: {network_default: allow}"));
    let udp = |rules: &FlowRules, host: &str, port| {
        let flow = Flow { host, port, transport: Transport::Udp, request: None };
        rules.judge(&flow).verdict()
    };
    assert_eq!(udp(&rules, "time.example.com", 123), Some(NetworkVerdict::Allow));
    assert_eq!(udp(&rules, "time.example.com", 124), Some(NetworkVerdict::Deny));
    assert_eq!(udp(&rules, "pypi.org", 443), Some(NetworkVerdict::Deny));
    assert_eq!(udp(&open, "pypi.org", 443), Some(NetworkVerdict::Deny));
}

#[test]
fn doors_for_udp_are_made_ahead_so_their_ports_are_named() {
    let rule = |more: &str| {
        let text = format!("network: {{rules: [{{host: a.org, transport: udp, {more}}}]}}");
        Document::parse(&text, Format::Yaml).map(|_| ())
    };
    for (more, good) in [
        ("verdict: allow", false),
        ("verdict: ask", false),
        ("port: 123, verdict: allow", true),
        ("verdict: deny", true),
    ] {
        assert_eq!(rule(more).is_ok(), good, "{more}: {:?}", rule(more));
    }
}

#[test]
fn only_names_that_could_be_reached_are_resolved() {
    let rules = FlowRules::new(&document(NETWORK));
    for (host, expected) in [
        ("api.example.com", true),
        ("pypi.org", true),
        ("x.pypi.org", false),
        ("other.org", false),
        ("time.example.com", true),
    ] {
        assert_eq!(rules.may_resolve(host), expected, "{host}");
    }
    use NetworkVerdict::{Allow, Ask, Deny};
    let asking = FlowRules::new(&document(
        "
network_allowlist: [b.org, c.org]
network:
  rules:
    - {host: a.org, verdict: ask}
    - {host: b.org, port: 22, verdict: ask}
    - {host: c.org, verdict: ask}
    - {host: d.org, port: 22, verdict: deny}
",
    ));
    for (host, expected) in [
        ("a.org", Some(Ask)),
        ("b.org", Some(Allow)),
        ("c.org", Some(Ask)),
        ("d.org", Some(Deny)),
        ("e.org", None),
    ] {
        assert_eq!(asking.resolution(host), expected, "{host}");
    }
}

#[test]
fn modes_follow_from_what_is_named() {
    for (yaml, expected) in [
        ("name: a", NetworkMode::None),
        ("network_allowlist: [a.com]", NetworkMode::Allowlist),
        ("network: {rules: [{host: a.com, verdict: ask}]}", NetworkMode::Allowlist),
        ("defaults: {network_default: allow}", NetworkMode::Full),
        ("network_allowlist: [a.com]\nnetwork: {mode: none}", NetworkMode::None),
    ] {
        assert_eq!(document(yaml).network_mode(), expected, "{yaml}");
    }
    let closed = FlowRules::new(&document("network_allowlist: [a.com]\nnetwork: {mode: none}"));
    let flow = Flow { host: "a.com", port: 443, transport: Transport::Tcp, request: None };
    assert_eq!(closed.judge(&flow), FlowDecision::Default(NetworkVerdict::Deny));
}
