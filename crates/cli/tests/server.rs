//! The server that commands find or start: one for a state directory, whoever asks first.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use serde_json::Value;
use support::Place;

/// A server that was started on purpose; ends with the test.
struct Served {
    child: Child,
    ready: Value,
}

impl Served {
    fn start(place: &Place, words: &[&str]) -> Self {
        Self::start_saying(place, words, Stdio::inherit())
    }

    fn start_saying(place: &Place, words: &[&str], stderr: Stdio) -> Self {
        let words: Vec<&str> = ["serve", "--json"].iter().chain(words).copied().collect();
        let mut child = place.command(&words).stderr(stderr).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let ready = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        Self { child, ready }
    }

    fn address(&self, scheme: &str) -> String {
        let addresses = self.ready["addresses"].as_array().unwrap();
        let found = addresses.iter().filter_map(Value::as_str).find(|a| a.starts_with(scheme));
        found.unwrap().to_owned()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
    }
}

fn pid(place: &Place) -> u64 {
    place.run(&["server", "status", "--json"]).exits(0).json()["pid"].as_u64().unwrap()
}

#[test]
fn ten_commands_at_once_start_one_server() {
    let place = Place::new();
    let commands: Vec<Child> =
        (0..10).map(|_| place.command(&["list", "--json"]).spawn().unwrap()).collect();
    for command in commands {
        let output = command.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    let status = place.run(&["server", "status", "--json"]).exits(0).json();
    assert_eq!(status["automatic"], true);
    assert_eq!(status["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(status["state_dir"], place.state_dir().to_str().unwrap());
    assert!(status["addresses"][0].as_str().unwrap().starts_with("unix:"));
    assert_eq!(status["counts"]["sandboxes"], 0);
    // Whoever lost the race left no second server behind.
    assert_eq!(servers_of(&place), [status["pid"].as_u64().unwrap()]);
}

/// Processes that serve this place's state directory.
fn servers_of(place: &Place) -> Vec<u64> {
    let state_dir = place.state_dir();
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let command = std::fs::read(entry.path().join("cmdline")).ok()?;
            let words: Vec<&[u8]> = command.split(|&byte| byte == 0).collect();
            let serves = words.contains(&b"serve".as_slice())
                && words.contains(&state_dir.as_os_str().as_encoded_bytes());
            serves.then_some(pid)
        })
        .collect()
}

#[test]
fn a_server_that_was_stopped_or_killed_is_replaced() {
    let place = Place::new();
    place.run(&["list"]).exits(0);
    let first = pid(&place);
    place.run(&["server", "stop"]).says("stopped\n").exits(0);
    place.run(&["server", "status"]).exits(125);
    place.run(&["list"]).exits(0);
    let second = pid(&place);
    assert_ne!(first, second);
    let raw = rustix::process::Pid::from_raw(i32::try_from(second).unwrap()).unwrap();
    rustix::process::kill_process(raw, rustix::process::Signal::KILL).unwrap();
    // It leaves its socket behind, which nobody answers on.
    place.run(&["list"]).exits(0);
    assert_ne!(pid(&place), second);
}

#[test]
fn sandboxes_and_processes_outlive_the_server() {
    let Some(place) = Place::with_sandboxes() else { return };
    place.run(&["create", "--name", "lasting"]).exits(0);
    let script = "echo before; read line; echo got $line";
    let words = ["exec", "lasting", "--detach", "--stdin", "--json", "--cmd", script];
    let started = place.run(&words).exits(0).json();
    let process = started["process"]["process_id"].as_str().unwrap().to_owned();
    place.run(&["server", "stop"]).exits(0);
    assert_eq!(place.run(&["inspect", "lasting", "--json"]).exits(0).json()["state"], "ready");
    place.run_input(&["attach", &process, "--since", "0"], b"input\n").exits(0);
    place.run(&["logs", &process]).says("before\ngot input\n").exits(0);
}

#[test]
fn what_keeps_a_server_from_starting_is_told() {
    let place = Place::new();
    // A file where the state directory should be.
    place.write("state", "");
    let answer = place.run(&["list", "--json"]).exits(125);
    assert_eq!(answer.json()["error"]["code"], "state-failed", "{}", answer.stdout);
    std::fs::remove_file(place.state_dir()).unwrap();
    // A database that is none: the server itself finds out, and its words reach us.
    place.write("state/belljar.db", "this is no database, and long enough to be looked at as one");
    let answer = place.run(&["list", "--json"]).exits(125);
    assert_eq!(answer.json()["error"]["code"], "state-failed", "{}", answer.stdout);
    std::fs::remove_dir_all(place.state_dir()).unwrap();
}

#[test]
fn a_second_server_refuses_the_state_directory() {
    let place = Place::new();
    let _served = Served::start(&place, &[]);
    let second = place.run(&["serve", "--json"]).exits(125);
    assert_eq!(second.json()["error"]["code"], "server-running");
    // Commands use the one that is there.
    place.run(&["list"]).exits(0);
    assert_eq!(place.run(&["server", "status", "--json"]).json()["automatic"], false);
}

#[test]
fn a_port_is_served_with_and_without_a_key() {
    let place = Place::new();
    let key = "a-key-of-our-own-choice-0123456789";
    place.write("key", &format!("{key}\n"));
    let file = place.path("key");
    let file = file.to_str().unwrap();
    {
        let served = Served::start(&place, &["--listen", "127.0.0.1:0"]);
        let url = served.address("http://");
        place.run(&["--server", &url, "list", "--json"]).says("[]\n").exits(0);
        place.run(&["serve", "--listen", "0.0.0.0:0"]).exits(125);
    }
    let served = Served::start(&place, &["--listen", "127.0.0.1:0", "--api-key-file", file]);
    let url = served.address("http://");
    let denied = place.run(&["--server", &url, "list", "--json"]).exits(125);
    assert_eq!(denied.json()["error"]["code"], "unauthenticated");
    let words = ["--server", &url, "--api-key", "wrong-key-wrong-key-wrong", "list", "--json"];
    assert_eq!(place.run(&words).exits(125).json()["error"]["code"], "unauthenticated");
    place.run(&["--server", &url, "--api-key", key, "list", "--json"]).says("[]\n").exits(0);
    let variables = [("BELLJAR_SERVER", url.as_str()), ("BELLJAR_API_KEY", key)];
    place.run_with(&["list", "--json"], &variables).says("[]\n").exits(0);
}

#[test]
fn a_server_that_has_had_keys_stays_closed_and_says_so() {
    let place = Place::new();
    let serve = || {
        let said = std::fs::File::create(place.path("said")).unwrap();
        let served = Served::start_saying(&place, &["--listen", "127.0.0.1:0"], said.into());
        let answer = place.run(&["--server", &served.address("http://"), "list", "--json"]);
        // The socket is always open to the operator.
        place.run(&["list"]).exits(0);
        drop(served);
        (answer, std::fs::read_to_string(place.path("said")).unwrap())
    };
    let (answer, said) = serve();
    answer.says("[]\n").exits(0);
    assert!(said.contains("the socket, and loopback addresses"), "{said}");

    let created = place.run(&["keys", "create", "--json"]).exits(0).json();
    place.run(&["keys", "revoke", created["key"]["key_id"].as_str().unwrap()]).exits(0);
    place.run(&["server", "stop"]).exits(0);
    let (answer, said) = serve();
    let refused = &answer.exits(125).json()["error"];
    assert_eq!(refused["code"], "unauthenticated");
    for told in [refused["message"].as_str().unwrap(), &said] {
        assert!(told.contains("every API key"), "{told}");
        assert!(told.contains("has expired or was revoked"), "{told}");
    }
    let remedy = refused["remedy"].as_str().unwrap();
    assert!(remedy.contains("Unix socket") && remedy.contains("belljar keys create"), "{remedy}");
    assert!(said.contains("only the Unix socket") && !said.contains("loopback"), "{said}");
}

#[test]
fn a_socket_replaces_nothing_that_is_in_use() {
    let (place, other) = (Place::new(), Place::new());
    place.write("notes", "precious");
    let notes = place.path("notes");
    let words = ["serve", "--json", "--socket", notes.to_str().unwrap()];
    let refused = place.run(&words).exits(125).json();
    assert_eq!(refused["error"]["code"], "invalid-argument");
    assert_eq!(std::fs::read_to_string(&notes).unwrap(), "precious");

    let socket = place.path("shared.sock");
    let shared = ["--socket", socket.to_str().unwrap()];
    let served = Served::start(&other, &shared);
    let words = ["serve", "--json", "--socket", socket.to_str().unwrap()];
    let refused = place.run(&words).exits(125).json();
    assert_eq!(refused["error"]["code"], "server-running");
    let url = format!("unix:{}", socket.display());
    let status = ["--server", &url, "server", "status", "--json"];
    assert_eq!(other.run(&status).exits(0).json()["pid"], served.ready["pid"]);

    // What a killed server leaves is replaced.
    let pid = rustix::process::Pid::from_child(&served.child);
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    drop(served);
    assert!(socket.exists());
    let served = Served::start(&place, &shared);
    assert_eq!(place.run(&status).exits(0).json()["pid"], served.ready["pid"]);
    drop(served);
    assert!(!socket.exists());
}

#[test]
fn keys_and_tenants_have_their_bounds() {
    let place = Place::new();
    place.run(&["tenants", "create", "blue", "--sandboxes", "0"]).exits(0);
    let shown = place.run(&["tenants", "show", "blue", "--json"]).exits(0).json();
    assert_eq!(shown["quotas"]["sandboxes"], 0);
    place.run(&["tenants", "set", "blue", "--processes", "5"]).exits(0);
    let shown = place.run(&["tenants", "show", "blue", "--json"]).exits(0).json();
    assert_eq!(
        (&shown["quotas"]["sandboxes"], &shown["quotas"]["processes"]),
        (&0.into(), &5.into())
    );
    let refused = place.run(&["create", "--tenant", "blue", "--json"]).exits(125).json();
    assert_eq!(refused["error"]["code"], "quota-exceeded");
    place.run(&["tenants", "set", "blue", "--sandboxes", "none"]).exits(0);
    assert!(place.run(&["tenants", "list"]).exits(0).stdout.contains("blue"));

    let words = ["keys", "create", "--tenant", "blue", "--scopes", "read", "--json"];
    let created = place.run(&words).exits(0).json();
    let (secret, id) = (created["secret"].as_str().unwrap(), &created["key"]["key_id"]);
    let id = id.as_str().unwrap();
    let socket = format!("unix:{}", place.state_dir().join("server.sock").display());
    let as_blue = |words: &[&str]| {
        let words: Vec<&str> =
            ["--server", &socket, "--api-key", secret].iter().chain(words).copied().collect();
        place.run(&words)
    };
    as_blue(&["list", "--json"]).says("[]\n").exits(0);
    let denied = as_blue(&["create", "--json"]).exits(125).json();
    assert_eq!(denied["error"]["code"], "permission-denied");
    let listed = place.run(&["keys", "list", "--json"]).exits(0);
    assert!(listed.stdout.contains(id) && !listed.stdout.contains(secret));
    place.run(&["keys", "revoke", id]).exits(0);
    assert_eq!(as_blue(&["list", "--json"]).exits(125).json()["error"]["code"], "unauthenticated");
    place.run(&["tenants", "rm", "blue"]).exits(0);
    let gone = place.run(&["tenants", "show", "blue", "--json"]).exits(125).json();
    assert_eq!(gone["error"]["code"], "tenant-not-found");
}

#[test]
fn a_key_of_every_scope_can_be_made() {
    let place = Place::new();
    let scopes = "read,write,exec,files,keys";
    let created = place.run(&["keys", "create", "--scopes", scopes, "--json"]).exits(0).json();
    assert_eq!(created["key"]["scopes"], serde_json::json!(scopes.split(',').collect::<Vec<_>>()));
    place.run(&["keys", "create", "--scopes", "nonesuch"]).exits(125);
    let absent = place.run(&["keys", "create", "--tenant", "acme", "--json"]).exits(125).json();
    let remedy = absent["error"]["remedy"].as_str().unwrap();
    assert!(remedy.contains("`belljar tenants create acme`"), "{absent}");
}

#[test]
fn what_was_done_is_on_record() {
    let place = Place::new();
    place.run(&["tenants", "create", "red"]).exits(0);
    let records = place.run(&["audit", "query", "--action", "tenant.create", "--json"]).exits(0);
    assert_eq!(records.stdout.lines().count(), 1, "{}", records.stdout);
    place.run(&["audit", "tail"]).exits(0);
    let verified = place.run(&["audit", "verify", "--json"]).exits(0).json();
    let anchor = format!("{}:{}", verified["last_seq"], verified["last_hash"].as_str().unwrap());
    place.run(&["audit", "verify", "--anchor", &anchor]).exits(0);
    let wrong = format!("{}:{}", verified["last_seq"], "0".repeat(64));
    let broken = place.run(&["audit", "verify", "--anchor", &wrong, "--json"]).exits(125).json();
    assert_eq!(broken["error"]["code"], "audit-broken");
}
