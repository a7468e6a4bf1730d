//! The binary, as far as no sandbox is needed: help, settings, mistakes.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use support::Place;

#[test]
fn the_version_is_told() {
    let place = Place::new();
    place.run(&["version"]).says("belljar 0.1.0\n").exits(0);
    place.run(&["--version"]).says("belljar 0.1.0\n").exits(0);
    let json = place.run(&["version", "--json"]).exits(0).json();
    assert_eq!(json["version"], "0.1.0");
}

#[test]
fn help_goes_to_standard_output_and_mistakes_to_standard_error() {
    let place = Place::new();
    let help = place.run(&["--help"]).exits(0);
    assert!(help.stdout.contains("Run commands:") && help.stderr.is_empty());
    let nothing = place.run(&[]).exits(125);
    assert!(nothing.stdout.is_empty() && nothing.stderr.contains("Usage:"));
    let mistake = place.run(&["run", "--bogus", "--", "true"]).exits(125);
    assert!(mistake.stdout.is_empty() && mistake.stderr.contains("--bogus"));
}

#[test]
fn a_mistake_is_an_object_for_programs() {
    let place = Place::new();
    let check = |words: &[&str], code: &str| {
        let answer = place.run(words).exits(125);
        assert_eq!(answer.json()["error"]["code"], code, "{words:?}");
        assert!(answer.json()["error"]["remedy"].is_string(), "{words:?}");
        assert_eq!(answer.stderr, "", "{words:?}");
    };
    check(&["run", "--json", "--bogus", "--", "true"], "invalid-argument");
    check(&["run", "--json", "--memory=-1", "--", "true"], "invalid-limit");
    check(&["run", "--json", "--memory", "900000t", "--", "true"], "invalid-limit");
    check(&["run", "--json", "--template", "nonesuch", "--", "true"], "template-not-found");
    check(&["run", "--json", "--name", "a\nb", "--", "true"], "invalid-name");
    check(&["run", "--json", "--allow", "a.com", "--", "true"], "conflicting-options");
    check(&["run", "--json", "--network", "allowlist", "--", "true"], "invalid-network-rule");
    check(&["run", "--json", "-s", "x", "--network", "full", "--", "true"], "conflicting-options");
    check(&["run", "--json", "--stdin", "--", "true"], "invalid-argument");
    check(&["signal", "--json", "p1", "NONE"], "invalid-argument");
    check(&["wait", "--json", "p1", "--timeout", "soon"], "invalid-limit");
    check(&["cp", "--json", "a", "b"], "invalid-argument");
    check(&["events", "--json", "--kind", "nonesuch"], "invalid-argument");
    check(&["tenants", "create", "--json", "Not A Name"], "invalid-name");
    check(&["create", "--json", "--user", "nonesuch"], "user-invalid");
    check(&["destroy", "--json", "--all", "x"], "conflicting-options");
}

#[test]
fn a_mistake_makes_nothing() {
    let place = Place::new();
    place.run(&["run", "--memory=0", "--", "true"]).exits(125);
    assert!(!place.state_dir().exists());
}

#[test]
fn people_read_the_reason_and_a_hint() {
    let place = Place::new();
    place.run(&["create", "--memory=-1"]).exits(125).complains(
        "error[invalid-limit]: memory limit `-1` is not a size above zero\n\n\
         hint: use a size between 16 MiB and 16 TiB, such as `512m` or `2g`\n",
    );
}

#[test]
fn a_server_that_is_not_there_is_told() {
    let place = Place::new();
    let words = ["list", "--json"];
    let nonsense = place.run_with(&words, &[("BELLJAR_SERVER", "nonsense")]).exits(125);
    assert_eq!(nonsense.json()["error"]["code"], "invalid-configuration");
    let by_flag = place.run(&["--server", "nonsense", "list", "--json"]).exits(125);
    assert_eq!(by_flag.json()["error"]["code"], "invalid-argument");
    let address = format!("unix:{}", place.path("none.sock").display());
    let nobody = place.run(&["--server", &address, "list", "--json"]).exits(125);
    assert_eq!(nobody.json()["error"]["code"], "server-unreachable");
    // Port 9 of loopback: nothing listens there.
    let closed = place.run(&["--server", "http://127.0.0.1:9", "list", "--json"]).exits(125);
    assert_eq!(closed.json()["error"]["code"], "server-unreachable");
    let status = place.run(&["server", "status", "--json"]).exits(125);
    assert_eq!(status.json()["error"]["code"], "server-unreachable");
    place.run(&["server", "stop"]).says("no server runs\n").exits(0);
    assert!(!place.state_dir().exists(), "who only asks makes nothing");
}

#[test]
fn settings_tell_where_they_come_from() {
    let place = Place::new();
    place.write(".config/belljar/config.toml", "memory = '1g'\nbackend = 'native'\n");
    let variables = [("BELLJAR_BACKEND", "local"), ("BELLJAR_API_KEY", "secret")];
    let answer = place.run_with(&["config", "show", "--json"], &variables).exits(0);
    let json = answer.json();
    let setting = |name: &str| {
        let settings = json.as_array().unwrap();
        settings.iter().find(|setting| setting["name"] == name).unwrap().clone()
    };
    assert_eq!(setting("backend")["value"], "local");
    assert_eq!(setting("backend")["source"], "BELLJAR_BACKEND");
    assert_eq!(setting("memory")["origin"], "user-file");
    assert_eq!(setting("pids")["origin"], "default");
    assert!(!answer.stdout.contains("secret"));
    let text = place.run_with(&["config", "show"], &variables).exits(0).stdout;
    assert!(!text.contains("secret") && text.contains("$BELLJAR_BACKEND"), "{text}");
}

#[test]
fn a_slip_in_the_configuration_is_an_error() {
    let place = Place::new();
    place.write(".config/belljar/config.toml", "memmory = '1g'\n");
    let answer = place.run(&["config", "show", "--json"]).exits(125);
    assert_eq!(answer.json()["error"]["code"], "invalid-configuration");
    assert!(answer.stdout.contains("memmory"));
}

#[test]
fn completions_know_every_command() {
    let place = Place::new();
    let help = place.run(&["--help"]).exits(0).stdout;
    let commands: Vec<&str> = help
        .lines()
        .filter(|line| line.starts_with("  ") && !line.trim_start().starts_with('-'))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() > 10, "{commands:?}");
    for shell in ["bash", "zsh", "fish"] {
        let script = place.run(&["completions", shell]).exits(0).stdout;
        for command in &commands {
            assert!(script.contains(command), "{command} is missing for {shell}");
        }
    }
}

#[test]
fn a_shell_needs_a_terminal() {
    let place = Place::new();
    let answer = place.run(&["shell"]).exits(125);
    assert!(answer.stderr.contains("not a terminal"), "{}", answer.stderr);
    assert!(!place.state_dir().exists());
}

#[test]
fn failures_speak_of_what_was_typed_and_say_what_to_do() {
    let place = Place::new();
    let told = place.run(&["extend", "web"]).stderr;
    assert!(told.contains("--idle-timeout") && told.contains("--lease"), "{told}");
    let told = place.run(&["audit", "query", "--since", "xx"]).exits(125).stderr;
    assert!(told.contains("`--since xx` is not a time"), "{told}");
    let told = place.run(&["cp", "/none/such", "web:/tmp/x"]).exits(125).stderr;
    assert!(told.contains("hint: check the path on this host"), "{told}");
    let told = place.run(&["--server", "embedded", "--state-dir", "/dev/null", "list"]);
    assert!(told.exits(125).stderr.contains("hint: "));
}
