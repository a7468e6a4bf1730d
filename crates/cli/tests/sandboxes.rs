//! The binary with real sandboxes, as a person or program uses it.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;

use support::Place;

macro_rules! place {
    () => {
        match Place::with_sandboxes() {
            Some(place) => place,
            None => return,
        }
    };
}

#[test]
fn the_exit_status_is_the_commands() {
    let place = place!();
    let check = |words: &[&str], status: i32| {
        let words: Vec<&str> = ["run"].iter().chain(words).copied().collect();
        place.run(&words).exits(status);
    };
    check(&["--", "true"], 0);
    check(&["--cmd", "exit 7"], 7);
    check(&["--cmd", "kill -9 $$"], 137);
    check(&["--cmd", "kill -TERM $$"], 143);
    check(&["--", "no-such-program"], 127);
    check(&["--", "/etc/passwd"], 126);
    check(&["--timeout", "0.5", "--", "sleep", "60"], 124);
    check(&["--workdir", "/no/such/place", "--", "true"], 125);
}

#[test]
fn output_and_input_pass_through_unchanged() {
    let place = place!();
    place
        .run(&["run", "--cmd", "echo out; echo err >&2"])
        .says("out\n")
        .complains("err\n")
        .exits(0);
    place.run(&["run", "--", "printf", "\\033[31m\\000x"]).says("\u{1b}[31m\0x").exits(0);
    let input: Vec<u8> = (0..1_000_000u32).map(|n| b'a' + (n % 26) as u8).collect();
    let answer = place.run_input(&["run", "--", "cat"], &input).exits(0);
    assert_eq!(answer.stdout.as_bytes(), input);
}

#[test]
fn a_result_for_programs_has_every_field() {
    let place = place!();
    let script = "echo hello; echo oops >&2; echo x > /output/a.txt; exit 3";
    let json = place.run(&["run", "--json", "--cmd", script]).exits(3).json();
    assert_eq!(json["exit_code"], 3);
    assert_eq!(json["stdout"], "hello\n");
    assert_eq!(json["stderr"], "oops\n");
    assert_eq!(json["reason"], "exited");
    assert_eq!(json["timed_out"], false);
    assert!(json["duration_ms"].is_u64());
    assert_eq!(json["artifacts"][0]["path"], "/output/a.txt");
    assert_eq!(json["artifacts"][0]["bytes"], 2);
    assert!(json["sandbox_id"].is_string());
    assert_eq!(json["session"]["created"], true);
    let isolation = &json["isolation"];
    assert_eq!(isolation["backend"], "native");
    assert_eq!(isolation["class"], "namespace");
    assert_eq!(isolation["network_mode"], "none");
    assert!(isolation["network_enforcement"].is_string());
    assert!(isolation["writable_paths"].as_array().unwrap().contains(&"/tmp".into()));
    assert_eq!(isolation["timeout_secs"], 60);
}

#[test]
fn a_timeout_is_told_as_one() {
    let place = place!();
    let words = ["run", "--json", "--timeout", "0.3", "--", "sleep", "60"];
    let json = place.run(&words).exits(124).json();
    assert_eq!(json["timed_out"], true);
    assert_eq!(json["reason"], "timed_out");
    assert_eq!(json["limits_hit"][0], "timed-out");
}

#[test]
fn runs_of_the_same_shape_share_a_session() {
    let place = place!();
    let first = place.run(&["run", "--json", "--cmd", "echo kept > /tmp/x"]).exits(0).json();
    let second = place.run(&["run", "--json", "--cmd", "cat /tmp/x"]).exits(0).json();
    assert_eq!(second["stdout"], "kept\n");
    assert_eq!(second["session"]["created"], false);
    assert_eq!(first["sandbox_id"], second["sandbox_id"]);
    place.run(&["run", "--ephemeral", "--cmd", "cat /tmp/x"]).exits(1);
}

#[test]
fn an_ephemeral_sandbox_ends_with_its_run() {
    let place = place!();
    place.run(&["run", "--ephemeral", "--", "true"]).exits(0);
    place.run(&["run", "--ephemeral", "--", "no-such-program"]).exits(127);
    assert_eq!(place.run(&["list", "--json"]).exits(0).json(), serde_json::json!([]));
}

#[test]
fn a_named_sandbox_lives_until_it_is_destroyed() {
    let place = place!();
    let id = place.run(&["create", "--name", "web"]).exits(0).stdout.trim().to_owned();
    let again = place.run(&["create", "--name", "web", "--json"]).exits(125).json();
    assert_eq!(again["error"]["code"], "sandbox-exists");
    let json = place.run(&["inspect", "web", "--json"]).exits(0).json();
    assert_eq!(json["sandbox_id"], id.as_str());
    assert_eq!((json["name"].as_str(), json["state"].as_str()), (Some("web"), Some("ready")));
    assert!(json["created_at"].as_str().unwrap().ends_with('Z'));
    place.run(&["exec", "web", "--", "echo", "hi"]).says("hi\n").exits(0);
    place.run(&["exec", &id, "--env", "A=1", "--cmd", "echo $A"]).says("1\n").exits(0);
    place.run(&["run", "--name", "web", "--", "true"]).exits(0);
    assert_eq!(place.run(&["list", "--json"]).json().as_array().unwrap().len(), 1);
    assert!(place.run(&["list"]).exits(0).stdout.contains("web"));
    place.run(&["destroy", "web"]).exits(0);
    let gone = place.run(&["inspect", "web", "--json"]).exits(125).json();
    assert_eq!(gone["error"]["code"], "sandbox-not-found");
}

#[test]
fn several_sandboxes_are_destroyed_at_once() {
    let place = place!();
    for name in ["a", "b", "c"] {
        place.run(&["create", "--name", name]).exits(0);
    }
    // One that is not there does not keep the others alive.
    place.run(&["destroy", "nonesuch", "a"]).exits(125);
    assert_eq!(place.run(&["list", "--json"]).json().as_array().unwrap().len(), 2);
    place.run(&["destroy", "--all"]).exits(0);
    assert_eq!(place.run(&["list", "--json"]).json(), serde_json::json!([]));
}

#[test]
fn files_go_in_before_and_come_out_after() {
    let place = place!();
    let words = [
        "run",
        "--write",
        "/tmp/in.txt=a=b\n",
        "--read",
        "/tmp/out.txt",
        "--cmd",
        "tr a-z A-Z < /tmp/in.txt > /tmp/out.txt",
    ];
    place.run(&words).says("A=B\n").exits(0);
    let words: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
    let json = place.run(&words).exits(0).json();
    assert_eq!(json["files"][0]["path"], "/tmp/out.txt");
    assert_eq!(json["files"][0]["content"], "A=B\n");
}

#[test]
fn an_explanation_names_what_enforces_each_rule() {
    let place = place!();
    let answer = place.run(&["run", "--explain", "--", "true"]).exits(0);
    assert!(answer.stdout.is_empty());
    assert!(answer.stderr.contains("backend     native"), "{}", answer.stderr);
    let json = place.run(&["run", "--explain", "--json", "--", "true"]).exits(0).json();
    assert_eq!(json["explain"]["requested_backend"], "auto");
    assert!(json["explain"]["rules"].as_array().unwrap().len() > 5);
}

#[test]
fn subverting_variables_are_left_out_and_told() {
    let place = place!();
    let answer =
        place.run(&["run", "--env", "LD_PRELOAD=/x.so", "--cmd", "echo \"[$LD_PRELOAD]\""]);
    let answer = answer.says("[]\n").exits(0);
    assert!(answer.stderr.contains("`LD_PRELOAD` was not passed on"), "{}", answer.stderr);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = place!();
    let mut child = place.command(&["run", "--", "yes"]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "y\n");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn an_interrupt_reaches_the_command() {
    let place = place!();
    let script = "trap 'exit 42' INT; echo ready; while :; do sleep 0.1; done";
    let mut child = place.command(&["run", "--cmd", script]).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(42));
}

#[test]
fn a_busy_session_is_not_waited_for() {
    let place = place!();
    let mut first =
        place.command(&["run", "--cmd", "echo ready; cat"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(first.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let second = place.run(&["run", "--", "echo", "second"]).says("second\n").exits(0);
    assert!(second.stderr.contains("is busy"), "{}", second.stderr);
    drop(first.stdin.take());
    assert_eq!(first.wait().unwrap().code(), Some(0));
    assert_eq!(place.run(&["list", "--json"]).json().as_array().unwrap().len(), 1);
}

#[test]
fn a_workspace_layer_is_shown_applied_and_discarded() {
    let place = place!();
    place.write("project/keep.txt", "old\n");
    place.write("project/gone.txt", "x\n");
    let words = ["create", "--name", "w", "--workspace", "project", "--workspace-mode", "overlay"];
    place.run(&words).exits(0);
    let change = "echo new > keep.txt; rm gone.txt; echo y > added.txt";
    place.run(&["exec", "w", "--workdir", "/workspace", "--cmd", change]).exits(0);
    let read = |name: &str| std::fs::read_to_string(place.path("project").join(name)).ok();
    assert_eq!(read("keep.txt").as_deref(), Some("old\n"));

    let json = place.run(&["diff", "w", "--json"]).exits(0).json();
    let changed = |name: &str| {
        json.as_array().unwrap().iter().find(|change| change["path"] == name).unwrap()["change"]
            .clone()
    };
    assert_eq!(changed("added.txt"), "added");
    assert_eq!(changed("keep.txt"), "modified");
    assert_eq!(changed("gone.txt"), "removed");

    place.run(&["apply", "w"]).exits(0);
    assert_eq!(read("keep.txt").as_deref(), Some("new\n"));
    assert_eq!(read("gone.txt"), None);
    assert_eq!(read("added.txt").as_deref(), Some("y\n"));
    assert_eq!(place.run(&["diff", "w", "--json"]).json(), serde_json::json!([]));

    place.run(&["exec", "w", "--workdir", "/workspace", "--cmd", "rm added.txt"]).exits(0);
    place.run(&["discard", "w"]).exits(0);
    assert_eq!(place.run(&["diff", "w", "--json"]).json(), serde_json::json!([]));
    assert!(read("added.txt").is_some());
}

#[test]
fn what_this_host_can_do_is_told() {
    let place = place!();
    let probes = place.run(&["probe", "--json"]).exits(0).json();
    assert!(probes.as_array().unwrap().iter().any(|probe| probe["backend"] == "native"));
    let nowhere = [("BELLJAR_SERVER", "embedded"), ("BELLJAR_DOCKER_HOST", "unix:///nowhere")];
    let words = ["probe", "--backend", "docker", "--refresh", "--json"];
    let probes = place.run_with(&words, &nowhere).exits(125).json();
    assert_eq!(
        probes.as_array().unwrap().len(),
        1,
        "that no engine is there is said once: {probes}"
    );
    place.run(&["doctor"]).exits(0);
    let json = place.run(&["doctor", "--leaks", "--json"]).exits(0).json();
    assert_eq!(json["leaks"]["found"], serde_json::json!([]));
    assert!(place.run(&["templates"]).exits(0).stdout.contains("host"));
    place.run(&["setup", "--write-config"]).exits(0);
    assert!(place.path(".config/belljar/config.toml").exists());
}

#[test]
fn isolation_is_not_given_up_by_accident() {
    let place = place!();
    let refused =
        place.run(&["run", "--json", "--backend", "local", "--", "true"]).exits(125).json();
    assert_eq!(refused["error"]["code"], "isolation-not-waived");
    let unknown = place.run(&["run", "--json", "--backend", "nonesuch", "--", "true"]).exits(125);
    assert_eq!(unknown.json()["error"]["code"], "backend-unavailable");
}

#[test]
fn output_without_end_is_bounded() {
    let place = place!();
    let words = ["run", "--json", "--timeout", "20", "--cmd", "yes | head -c 5000000"];
    let json = place.run(&words).exits(0).json();
    assert!(json["stdout"].as_str().unwrap().len() < 1_200_000);
    assert!(json["stdout"].as_str().unwrap().contains("[belljar: output truncated"));
    let mut child = place.command(&["run", "--cmd", "yes | head -c 5000000"]).spawn().unwrap();
    let mut all = Vec::new();
    child.stdout.take().unwrap().read_to_end(&mut all).unwrap();
    assert_eq!((all.len(), child.wait().unwrap().code()), (5_000_000, Some(0)));
}

#[test]
fn a_program_outside_the_list_is_denied_by_name_and_by_path_and_recorded() {
    let place = place!();
    let script = "python3 -c 'print(1)'; curl x; echo $?; /usr/bin/head -c 1 /etc/passwd; echo $?";
    place.run(&["run", "--programs", "python3,sh", "--cmd", script]).says("1\n126\n126\n").exits(0);
    place.run(&["run", "--programs", "python3,sh", "--", "tail", "/etc/passwd"]).exits(126);
    let audit = place.run(&["audit", "query", "--outcome", "program-denied", "--json"]).exits(0);
    for name in ["curl", "head", "tail"] {
        let wanted = format!("\"name\":\"{name}\"");
        assert!(
            audit.stdout.lines().any(|line| line.contains(&wanted)),
            "{name}: {}",
            audit.stdout
        );
    }
}

#[test]
fn the_local_backend_runs_only_where_isolation_was_waived() {
    let place = place!();
    let waived = ["run", "--backend", "local", "--i-understand-no-isolation"];
    let with = |more: &[&'static str]| waived.iter().chain(more).copied().collect::<Vec<_>>();
    place.run(&["run", "--backend", "local", "--network", "full", "--", "true"]).exits(125);
    // It has the host's network, so every promise about it is refused, the default one too.
    place.run(&with(&["--", "true"])).exits(125);
    place.run(&with(&["--network", "full", "--memory", "64m", "--", "true"])).exits(125);
    place.run(&with(&["--network", "full", "--", "echo", "plain"])).says("plain\n").exits(0);
}
