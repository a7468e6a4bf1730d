//! Sandboxes under policies, from the command line: the worked documents of the guide, kept policies, learned ones.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::path::Path;

use support::{Answer, Place};

fn example(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policies").join(name);
    path.canonicalize().unwrap().display().to_string()
}

/// Runs a command in a fresh sandbox under a worked document.
fn run(place: &Place, document: &str, options: &[&str], command: &[&str]) -> Answer {
    let document = example(document);
    let mut words = vec!["run", "--ephemeral", "--policy", &document];
    words.extend(options);
    words.push("--");
    words.extend(command);
    place.run(&words)
}

#[track_caller]
fn denied(answer: Answer, rule: &str) {
    let answer = answer.exits(125);
    assert!(answer.stderr.contains("denies this"), "{}", answer.stderr);
    assert!(answer.stderr.contains(rule), "{}", answer.stderr);
}

#[test]
fn locked_computes_and_nothing_else() {
    let Some(place) = Place::with_sandboxes() else { return };
    let locked = |options: &[&str], command: &[&str]| run(&place, "locked.yaml", options, command);
    locked(&[], &["python3", "-c", "print(6 * 7)"]).exits(0).says("42\n");
    denied(locked(&[], &["python3", "-c", "import subprocess"]), "rule `no-shell-out`");
    denied(locked(&[], &["ls", "/"]), "no rule allows it");
    // Less may be asked for, more may not; both are named.
    locked(&["--memory", "128m"], &["python3", "-c", "print(1)"]).exits(0);
    let check = |options: &[&str], expected: &str| {
        let answer = locked(options, &["python3", "-c", "print(1)"]).exits(125);
        assert!(answer.stderr.contains(expected), "{}", answer.stderr);
    };
    check(&["--memory", "1g"], "memory 1 GiB is more than policy `locked` grants: 256 MiB");
    check(&["--network", "full"], "network `full` is more than policy `locked` grants: `none`");
    check(&["--programs", "curl"], "program `curl` is more than policy `locked` grants");
    check(&["--writable"], "a writable root is more than");
    check(&["--timeout", "10m"], "a timeout of");
    check(&["--mount", "/usr/share:/data:ro"], "directory `/usr/share` (ro) is more than");
    // What it says holds inside.
    let inside = locked(&[], &["python3", "-c", "import os; os.execvp('id', ['id'])"]).status;
    assert_ne!(inside, Some(0));
    place.write("out.yaml", "name: m\nfilesystem: {mounts: [{source: data, target: /data}]}\n");
    place.write("data/file", "of the host");
    let policy = place.path("out.yaml").display().to_string();
    place
        .run(&["run", "--ephemeral", "--policy", &policy, "--", "cat", "/data/file"])
        .exits(0)
        .says("of the host");
}

#[test]
fn packages_and_github_agent_within_their_bounds() {
    let Some(place) = Place::with_sandboxes() else { return };
    // Asked for with less than they grant, so that this needs no network.
    let none = ["--network", "none"];
    run(&place, "packages.yaml", &none, &["echo", "built"]).exits(0).says("built\n");
    let publish = ["sh", "-c", "cargo publish"];
    denied(run(&place, "packages.yaml", &none, &publish), "no-publish-commands`: packages are");
    run(&place, "github-agent.yaml", &none, &["echo", "git"]).exits(0).says("git\n");
    let force = ["git", "push", "--force"];
    denied(run(&place, "github-agent.yaml", &none, &force), "no-force`: history stays");
    let answer =
        run(&place, "packages.yaml", &["--network", "allowlist", "--allow", "evil.net"], &["true"]);
    let answer = answer.exits(125);
    assert!(answer.stderr.contains("host `evil.net` is more than"), "{}", answer.stderr);
}

#[test]
fn organisation_team_and_tools() {
    let Some(place) = Place::with_sandboxes() else { return };
    let none = ["--network", "none"];
    let key = ["python3", "-c", "print('AKIAABCDEFGHIJKLMNOP')"];
    let weekend = r#"time={"day_of_week": 6}"#;
    run(&place, "organisation.yaml", &[], &["echo", "hi"]).exits(0).says("hi\n");
    denied(run(&place, "organisation.yaml", &[], &key), "no-secrets-in-code");
    denied(run(&place, "organisation.yaml", &["--context", weekend], &["true"]), "weekends");
    // The team replaced the weekend rule, and cannot replace what the organisation denies.
    let with = ["--network", "none", "--context", weekend];
    run(&place, "team.yaml", &with, &["echo", "on", "call"]).exits(0).says("on call\n");
    denied(run(&place, "team.yaml", &none, &key), "no-secrets-in-code");
    // Only tools: no command is allowed, and the sandbox is there.
    place.run(&["create", "--name", "tools", "--policy", &example("tools.yaml")]).exits(0);
    denied(place.run(&["exec", "tools", "--", "true"]), "no rule allows it");
    let sandbox = place.run(&["inspect", "tools", "--json"]).exits(0).json();
    let checked = place.run(&["policy", "check", "--json", &example("tools.yaml")]).exits(0).json();
    assert_eq!(sandbox["policy"]["digest"], checked[0]["digest"]);
    let text = place.run(&["inspect", "tools"]).exits(0).stdout;
    assert!(text.contains(checked[0]["digest"].as_str().unwrap()), "{text}");

    let denials = place.run(&["audit", "query", "--verdict", "deny", "--json"]).exits(0).stdout;
    assert!(denials.lines().count() >= 3, "{denials}");
    assert!(!denials.contains("AKIAABCDEFGHIJKLMNOP"), "{denials}");
    let words = ["audit", "query", "--rule", "weekends", "--verdict", "block", "--json"];
    let blocked = place.run(&words).exits(0).stdout;
    assert_eq!(blocked.lines().count(), 1, "{blocked}");
}

#[test]
fn policies_are_kept_and_used_by_name() {
    let Some(place) = Place::with_sandboxes() else { return };
    place.run(&["policy", "put", "team", &example("team.yaml")]).exits(0).says("team@1\n");
    place.run(&["policy", "put", "team", &example("team.yaml")]).exits(0).says("team@1\n");
    place.run(&["policy", "put", "team", &example("organisation.yaml")]).exits(0).says("team@2\n");
    let listed = place.run(&["policy", "list", "--json"]).exits(0).json();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["version"]), (1, &2.into()));
    let versions = place.run(&["policy", "list", "team", "--json"]).exits(0).json();
    assert_eq!(versions.as_array().unwrap().len(), 2);
    let shown = place.run(&["policy", "get", "team@1"]).exits(0).stdout;
    assert!(shown.starts_with("# team@1\n") && shown.contains("our-commands"), "{shown}");
    let run = |name: &str| {
        place.run(&[
            "run",
            "--ephemeral",
            "--policy",
            name,
            "--network",
            "none",
            "--json",
            "--",
            "true",
        ])
    };
    run("team@1").exits(0);
    run("team").exits(0);
    let missing = run("team@9").exits(125);
    assert_eq!(missing.json()["error"]["code"], "policy-not-found");
    place.run(&["policy", "rm", "team"]).exits(0);
    run("team@1").exits(125);
    // A sandbox keeps its policy: another one is refused, not ignored.
    let none = ["--network", "none"];
    place.run(&["create", "--name", "one", "--policy", &example("organisation.yaml")]).exits(0);
    let other = example("packages.yaml");
    let mut words = vec!["run", "--name", "one", "--policy", &other];
    words.extend(none);
    words.extend(["--", "true"]);
    let refused = place.run(&words).exits(125);
    assert!(refused.stderr.contains("exists with policy `organisation`"), "{}", refused.stderr);
}

#[test]
fn a_policy_is_learned_from_what_was_done() {
    let Some(place) = Place::with_sandboxes() else { return };
    place.run(&["create", "--name", "rec", "--policy-record"]).exits(0);
    place.run(&["exec", "rec", "--", "echo", "one"]).exits(0);
    place
        .run(&["exec", "rec", "--env", "LANG=C", "--cmd", "echo two > /tmp/x; cat /tmp/x"])
        .exits(0);
    place.run(&["exec", "rec", "--cmd", "true; TOKEN=abcdef123456"]).exits(0);
    place.run_input(&["files", "write", "rec", "/tmp/file"], b"text").exits(0);
    let learned = place.run(&["policy", "learn", "rec"]).exits(0);
    assert!(!learned.stdout.contains("abcdef123456"), "{}", learned.stdout);
    assert!(learned.stderr.contains("secrets"), "{}", learned.stderr);
    place.write("learned.yaml", &learned.stdout);
    let policy = place.path("learned.yaml").display().to_string();
    place.run(&["policy", "check", &policy]).exits(0);

    place.run(&["create", "--name", "again", "--policy", &policy]).exits(0);
    place.run(&["exec", "again", "--", "echo", "one"]).exits(0).says("one\n");
    place
        .run(&["exec", "again", "--env", "LANG=C", "--cmd", "echo two > /tmp/x; cat /tmp/x"])
        .exits(0)
        .says("two\n");
    place.run_input(&["files", "write", "again", "/tmp/file"], b"text").exits(0);
    denied(place.run(&["exec", "again", "--", "echo", "other"]), "no rule allows it");
    let denied_file = place.run_input(&["files", "write", "again", "/tmp/other"], b"x").exits(125);
    assert!(denied_file.stderr.contains("denies this"), "{}", denied_file.stderr);
    let other = place.run(&["exec", "again", "--env", "OTHER=1", "--", "echo", "one"]).exits(125);
    assert!(other.stderr.contains("environment variable `OTHER`"), "{}", other.stderr);
    place.run(&["create", "--name", "plain"]).exits(0);
    place.run(&["policy", "learn", "plain"]).exits(125);
}

#[test]
fn what_stands_out_in_python_code_is_in_the_answer() {
    let Some(place) = Place::with_sandboxes() else { return };
    let answer = |words: &[&str], code: &str| {
        let mut all = words.to_vec();
        all.extend(["--", "python3", "-c", code]);
        place.run(&all).exits(0).json()
    };
    place.run(&["create", "--name", "box"]).exits(0);
    let shells = "import subprocess\nsubprocess.run(['true'])";
    for words in [&["run", "--ephemeral", "--json"][..], &["exec", "box", "--json"]] {
        assert_eq!(answer(words, "print(1)")["findings"].as_array().map(Vec::len), Some(0));
        let found = &answer(words, shells)["findings"][0];
        assert_eq!((&found["line"], &found["rule"]), (&2.into(), &"shell".into()), "{found}");
        assert_eq!(found["name"], "subprocess.run");
    }
    let started = answer(&["exec", "box", "--detach", "--json"], shells);
    assert_eq!(started["process"]["findings"][0]["column"], 1, "{started}");
}
