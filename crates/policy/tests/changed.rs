//! What the fuzz targets check, on every run of the tests.

#[path = "../../../fuzz/checks/policy.rs"]
mod checks;
#[path = "../../../fuzz/checks/mutate.rs"]
mod mutate;

const DOCUMENT: &str = include_str!("../../../examples/policies/github-agent.yaml");
const TEAM: &str = include_str!("../../../examples/policies/organisation.yaml");

#[test]
fn documents_code_and_hosts_hold_when_they_are_changed() {
    let json = r#"{"version": "1.0", "name": "x", "rules": [{"name": "a", "condition": {"field": "command", "operator": "in", "value": ["a", 1, null]}, "action": "deny"}]}"#;
    mutate::run_text("documents", &[DOCUMENT, TEAM, json], checks::document);
    let code = "import os as o, subprocess\nfrom ctypes import CDLL as c\ngetattr(o, 'sys' + x)(f'{y!r:>{w}}')\n\
                class A:\n    def f(self):\n        return __import__(\"a\").b\nmatch x:\n    case [1, *_]: eval('1')\n";
    mutate::run_text("code", &[code], checks::code);
    let hosts = [
        "example.com",
        "*.a.example.co.uk:8443/p/*",
        "xn--bcher-kva.example",
        "[::1]:80",
        "b\u{fc}cher.example/",
    ];
    mutate::run_text("hosts", &hosts, checks::host);
}
