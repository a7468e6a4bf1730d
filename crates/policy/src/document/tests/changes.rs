use super::*;
use crate::document::{Effect, diff};

fn words(old: &str, new: &str) -> Vec<String> {
    diff(&document(old), &document(new)).iter().map(ToString::to_string).collect()
}

#[test]
fn changes_are_said_in_words() {
    let check = |old: &str, new: &str, expected: &[&str]| {
        let found = words(old, new);
        for text in expected {
            assert!(found.iter().any(|line| line == text), "{text} not in {found:#?}");
        }
    };
    check(
        "network_allowlist: [a.com, c.com]",
        "network_allowlist: [b.com, c.com]",
        &["+ host `b.com` becomes reachable", "- host `a.com` is no longer reachable"],
    );
    // Still allowed by the wildcard, so nothing is lost.
    let still = words("network_allowlist: [x.a.com, '*.a.com']", "network_allowlist: ['*.a.com']");
    assert!(still.iter().all(|line| line.starts_with('~')), "{still:?}");
    check(
        "network: {rules: [{host: a.com, method: GET, path: /x/*, verdict: allow}]}",
        "network: {rules: [{host: a.com, method: [GET, POST], path: /x/*, verdict: allow}]}",
        &["+ host `a.com` for POST /x/* becomes reachable"],
    );
    check(
        "name: a",
        "name: a\ndefaults: {network_default: allow}",
        &["+ hosts that nothing names become reachable"],
    );
    check(
        "tool_allowlist: [a]",
        "tool_allowlist: [b]",
        &["+ tool `b` exists", "- tool `a` no longer exists"],
    );
    check(
        "tools: [{name: a, command: [x, y]}, {name: b, command: [z]}]",
        "tools: [{name: c, http: {url: 'http://d'}}, {name: b, command: [q]}]",
        &[
            "+ the host runs tool c by http://d",
            "- the host no longer runs tool a by `x y`",
            "~ tool `b` is run otherwise",
        ],
    );
    check(
        "sandbox_mounts: {input_dir: in}",
        "filesystem: {mounts: [{source: src, target: /data, access: rw}]}",
        &["+ path `/data` (host `src`) becomes writable", "- path `/input` is no longer there"],
    );
    check(
        "defaults: {max_memory_mb: 512, timeout_seconds: 60}",
        "defaults: {max_memory_mb: 1024, timeout_seconds: 30}",
        &[
            "+ limit on memory in MiB rises from 512 to 1024",
            "- limit on seconds of a command falls from 60 to 30",
        ],
    );
    check("isolation: vm", "isolation: kernel", &["+ the weakest isolation is `kernel`, was `vm`"]);
    check("programs: [a, b]", "programs: [a, c]", &["+ program `c` is reachable"]);
    check(
        "name: a",
        "name: a\ndefaults: {action: deny}",
        &["- what no rule names is `deny`, was `allow`"],
    );
    check(
        "name: a",
        "name: a\nrules: [{name: r, condition: {field: x, operator: eq, value: 1}, action: deny}]",
        &["- rule `r` comes: deny where x equals 1 (priority 0)"],
    );
}

#[test]
fn equal_documents_have_no_changes() {
    assert_eq!(words("tool_allowlist: [a, b]", "tool_allowlist: [b, a, a]"), Vec::<String>::new());
}

#[test]
fn effects_are_told_apart() {
    let found = diff(&document("tool_allowlist: [a]"), &document("name: x"));
    let effects: Vec<_> = found.iter().map(|change| change.effect).collect();
    assert_eq!(effects, [Effect::Narrower, Effect::Other]);
}
