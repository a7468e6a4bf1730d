//! `belljar policy`, as people and CI use it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::path::Path;

use support::Place;

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies").join(name);
    path.canonicalize().unwrap().display().to_string()
}

#[test]
fn documents_are_checked_with_line_and_column() {
    let place = Place::new();
    let good = place.run(&["policy", "check", "--json", &example("team.yaml")]).exits(0);
    assert_eq!(good.json()[0]["name"], "team");
    assert_eq!(good.json()[0]["documents"].as_array().unwrap().len(), 2);
    place.write("bad.yaml", "name: x\nrules:\n  - name: a\n    actoin: deny\n");
    let path = place.path("bad.yaml").display().to_string();
    let bad = place.run(&["policy", "check", &path]).exits(125);
    assert!(bad.stderr.contains("line 4, column 5: unknown field `actoin`"), "{}", bad.stderr);
    assert!(bad.stderr.contains("did you mean `action`?"), "{}", bad.stderr);
    let json = place.run(&["policy", "check", "--json", &path]).exits(125).json();
    assert_eq!(json["error"]["code"], "invalid-policy");
    place.run(&["policy", "check", "/nonesuch"]).exits(125);
    assert!(!place.state_dir().exists());
}

#[test]
fn cases_decide_the_exit_status() {
    let place = Place::new();
    let (policy, cases) = (example("tools.yaml"), example("cases/tools.yaml"));
    let good = place.run(&["policy", "test", &policy, &cases]).exits(0);
    assert!(good.stdout.ends_with("6 cases, 0 failed\n"), "{}", good.stdout);
    let text = "cases: [{name: wrong, context: {tool: search}, expect: deny}]";
    place.write("wrong.yaml", text);
    let wrong = place.path("wrong.yaml").display().to_string();
    let bad = place.run(&["policy", "test", &policy, &wrong]).exits(1);
    assert!(bad.stdout.contains("FAIL  wrong: allow by `search`, expected deny"), "{}", bad.stdout);
    let json = place.run(&["policy", "test", "--json", &policy, &wrong]).exits(1).json();
    assert_eq!(json[0]["passed"], false);
}

#[test]
fn answers_are_explained() {
    let place = Place::new();
    let explain = |more: &[&str]| {
        let policy = example("team.yaml");
        let words: Vec<&str> = ["policy", "explain", &policy].iter().chain(more).copied().collect();
        place.run(&words).exits(0)
    };
    let denied = explain(&["--action", "code", "--field", "code=AKIAABCDEFGHIJKLMNOP"]).stdout;
    assert!(denied.contains("deny: ") && denied.contains("no-secrets-in-code"), "{denied}");
    let allowed = explain(&["--action", "exec", "--json"]).json();
    assert_eq!(allowed["decision"]["verdict"], "allow");
    assert_eq!(allowed["next_verdict"], "deny");
    let host = explain(&["--host", "internal.example.com", "--json"]).json();
    assert_eq!(host["verdict"], "allow");
    assert_eq!(explain(&["--host", "example.com:80", "--json"]).json()["verdict"], "deny");
}

#[test]
fn changes_are_told_in_words() {
    let place = Place::new();
    place.write("old.yaml", "name: a\nnetwork_allowlist: [a.com]\n");
    place.write("new.yaml", "name: a\nnetwork_allowlist: [a.com, b.com]\n");
    let (old, new) = (
        place.path("old.yaml").display().to_string(),
        place.path("new.yaml").display().to_string(),
    );
    let wider = place.run(&["policy", "diff", "--fail-if-wider", &old, &new]).exits(1);
    assert!(wider.stdout.contains("+ host `b.com` becomes reachable\n"), "{}", wider.stdout);
    let narrower = place.run(&["policy", "diff", "--fail-if-wider", &new, &old]).exits(0);
    assert!(narrower.stdout.contains("- host `b.com` is no longer reachable\n"));
    place.run(&["policy", "diff", &old, &old]).says("").exits(0);
}

#[test]
fn folders_count_from_the_root_down() {
    let place = Place::new();
    let rule = "condition: {field: x, operator: eq, value: 1}";
    place.write("top/belljar.yaml", &format!("rules: [{{name: stop, {rule}, action: deny}}]\n"));
    place.write(
        "top/a/governance.yaml",
        &format!("inherit: false\nrules: [{{name: go, {rule}, action: allow, priority: 9}}]\n"),
    );
    let (root, below) =
        (place.path("top").display().to_string(), place.path("top/a").display().to_string());
    let words = ["policy", "explain", "--json", "-f", "x=1", "--root", &root, &below];
    let answer = place.run(&words).exits(0).json();
    assert_eq!(answer["decision"]["verdict"], "deny");
    assert_eq!(answer["decision"]["rule"], "stop");
    let alone = place.run(&["policy", "explain", "--json", "-f", "x=1", &below]).exits(0).json();
    assert_eq!(alone["decision"]["verdict"], "allow");
    let shown = place.run(&["policy", "show", "--root", &root, &below]).exits(0).stdout;
    assert!(shown.contains("belljar.yaml") && shown.contains("governance.yaml"), "{shown}");
}

#[test]
fn code_is_scanned_and_findings_are_hints() {
    let place = Place::new();
    place.write("agent.py", "import os as o\n\no.system('id')\nx = = 1\n");
    let path = place.path("agent.py").display().to_string();
    let text = place.run(&["policy", "scan", &path]).exits(0).stdout;
    assert!(text.contains("line 3, column 1: shell: `os.system` starts a program\n"), "{text}");
    assert!(text.contains("line 4, column 5: syntax-error: "), "{text}");
    let json = place.run(&["policy", "scan", "--json", &path]).exits(0).json();
    let expected =
        serde_json::json!({"line": 3, "column": 1, "rule": "shell", "name": "os.system"});
    assert_eq!(json[0], expected);
    place.write("plain.py", "import os\nprint(os.getcwd())\n");
    let plain = place.path("plain.py").display().to_string();
    assert_eq!(
        place.run(&["policy", "scan", "--json", &plain]).exits(0).json(),
        serde_json::json!([])
    );
    let absent = place.run(&["policy", "scan", "--json", "/nonesuch.py"]).exits(125).json();
    assert_eq!(absent["error"]["code"], "invalid-argument");
}
