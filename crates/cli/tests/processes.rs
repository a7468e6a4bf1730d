//! Processes as durable objects: started, left alone, looked at, followed, ended.

#![allow(clippy::unwrap_used, reason = "a test may fail")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use support::{Answer, Place};

macro_rules! place {
    () => {
        match Place::with_sandboxes() {
            Some(place) => place,
            None => return,
        }
    };
}

/// Starts a command that stays, and gives its process's id.
fn start(place: &Place, script: &str, more: &[&str]) -> String {
    let words: Vec<&str> =
        ["run", "--detach", "--cmd", script].iter().chain(more).copied().collect();
    place.run(&words).exits(0).stdout.trim().to_owned()
}

#[test]
fn a_detached_command_has_every_field_and_goes_on() {
    let place = place!();
    let json =
        place.run(&["run", "--detach", "--json", "--cmd", "echo out; exit 4"]).exits(0).json();
    let process = &json["process"];
    let id = process["process_id"].as_str().unwrap();
    assert_eq!(process["sandbox_id"], json["sandbox_id"]);
    assert_eq!(process["disposition"], "kept");
    assert!(process["command"].as_str().unwrap().contains("echo out"));
    assert!(process["started_at"].as_str().unwrap().ends_with('Z'));
    let ended = place.run(&["wait", id, "--json"]).exits(4).json();
    assert_eq!((&ended["status"], &ended["exit_code"]), (&"failed".into(), &4.into()));
    assert_eq!(ended["reason"], "exited");
    assert!(ended["finished_at"].is_string() && ended["expires_at"].is_string());
    place.run(&["logs", id]).says("out\n").exits(0);
    let missing = place.run(&["wait", "pnonesuch", "--json"]).exits(125).json();
    assert_eq!(missing["error"]["code"], "process-not-found");
}

#[test]
fn output_is_replayed_from_any_byte_and_by_stream() {
    let place = place!();
    let id = start(&place, "printf 0123456789; printf abc >&2", &[]);
    place.run(&["wait", &id]).says("succeeded 0\n").exits(0);
    place.run(&["logs", &id]).says("0123456789").complains("abc").exits(0);
    place.run(&["logs", &id, "--since", "7"]).says("789").complains("").exits(0);
    place.run(&["logs", &id, "--stream", "stderr"]).says("").complains("abc").exits(0);
    let lines = place.run(&["logs", &id, "--json", "--stream", "stdout"]).exits(0).stdout;
    let first: serde_json::Value = serde_json::from_str(lines.lines().next().unwrap()).unwrap();
    assert_eq!((&first["channel"], &first["offset"]), (&"stdout".into(), &0.into()));
}

#[test]
fn a_follower_sees_output_while_the_command_runs() {
    let place = place!();
    let id = start(&place, "echo one; read x; echo two $x", &["--stdin"]);
    let mut follower = place.command(&["logs", "--follow", &id]).spawn().unwrap();
    let mut lines = BufReader::new(follower.stdout.take().unwrap());
    let mut line = String::new();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "one\n");
    assert!(place.run(&["ps"]).exits(0).stdout.contains(&id));
    // A follower that goes away ends nothing.
    let mut other = place.command(&["logs", "--follow", &id]).spawn().unwrap();
    other.kill().unwrap();
    other.wait().unwrap();
    let mut writer = place.command(&["attach", &id]).stdin(Stdio::piped()).spawn().unwrap();
    writer.stdin.take().unwrap().write_all(b"three\n").unwrap();
    line.clear();
    lines.read_line(&mut line).unwrap();
    assert_eq!(line, "two three\n");
    assert_eq!(follower.wait().unwrap().code(), Some(0));
    assert_eq!(writer.wait().unwrap().code(), Some(0));
    assert_eq!(place.run(&["ps", "--json"]).exits(0).json(), serde_json::json!([]));
    let all = place.run(&["ps", "--all", "--json"]).exits(0).json();
    assert_eq!(all[0]["process_id"], id.as_str());
}

#[test]
fn whoever_watches_a_command_is_told_that_its_sandbox_ended() {
    let place = place!();
    place.run(&["create", "--name", "d1"]).exits(0);
    let words = ["exec", "d1", "--", "sh", "-c", "echo up; sleep 60"];
    let mut watcher = place.command(&words).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(watcher.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "up\n");
    place.run(&["destroy", "d1"]).exits(0);
    let told = Answer::from(watcher.wait_with_output().unwrap()).exits(125).stderr;
    let expected = "error[sandbox-gone]: the command was lost: sandbox `d1` has ended\n  caused by: it was destroyed\n\nhint: run";
    assert!(told.starts_with(expected), "{told}");

    place.run(&["create", "--name", "d2", "--lease", "2"]).exits(0);
    let told = place.run(&["run", "--sandbox", "d2", "--", "sleep", "60"]).exits(125).stderr;
    assert!(told.contains("sandbox `d2` has ended\n  caused by: its lease ended\n"), "{told}");
}

#[test]
fn whoever_types_to_a_process_without_input_is_told() {
    let place = place!();
    let id = start(&place, "sleep 2", &[]);
    let told = place.run_input(&["attach", &id], b"abc").exits(0).stderr;
    let expected = format!(
        "note: input is not passed on: process `{id}` was started without standard input\n"
    );
    assert_eq!(told, expected);
}

#[test]
fn waiting_has_an_end_and_so_has_cancelling() {
    let place = place!();
    let id = start(&place, "trap '' TERM; echo ready; while :; do sleep 0.1; done", &[]);
    place.run(&["wait", &id, "--timeout", "0"]).exits(124);
    assert_eq!(place.run(&["wait", &id, "--timeout", "0.1"]).exits(124).stdout, "running\n");
    let json = place.run(&["cancel", &id, "--grace", "0.2", "--json"]).exits(0).json();
    assert_eq!((&json["status"], &json["reason"]), (&"cancelled".into(), &"cancelled".into()));
    // Once more is fine; a signal has nobody to go to.
    place.run(&["cancel", &id]).exits(0);
    let ended = place.run(&["signal", &id, "TERM", "--json"]).exits(125).json();
    assert_eq!(ended["error"]["code"], "process-ended");
}

#[test]
fn a_signal_reaches_the_process() {
    let place = place!();
    let id = start(&place, "trap 'exit 9' USR1; echo ready; while :; do sleep 0.1; done", &[]);
    let mut follower = place.command(&["logs", "--follow", &id]).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(follower.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    place.run(&["signal", &id, "usr1"]).exits(0);
    place.run(&["wait", &id]).exits(9);
    follower.wait().unwrap();
}

#[test]
fn the_same_key_gives_the_same_process_and_sandbox() {
    let place = place!();
    let words = ["create", "--name", "once", "--idempotency-key", "k1"];
    let first = place.run(&words).exits(0).stdout;
    assert_eq!(place.run(&words).exits(0).stdout, first);
    let other = ["create", "--name", "twice", "--idempotency-key", "k1", "--json"];
    assert_eq!(place.run(&other).exits(125).json()["error"]["code"], "idempotency-conflict");
    place.run(&["create", "--name", "once", "--get-or-create"]).says(&first).exits(0);
    let words = ["exec", "once", "--detach", "--idempotency-key", "k2", "--", "sleep", "30"];
    let process = place.run(&words).exits(0).stdout;
    assert_eq!(place.run(&words).exits(0).stdout, process);
}

#[test]
fn a_paused_sandbox_waits_and_a_lease_is_extended() {
    let place = place!();
    place.run(&["create", "--name", "p", "--label", "team=a", "--metadata", "note=x y"]).exits(0);
    place.run(&["pause", "p"]).says("paused\n").exits(0);
    let refused = place.run(&["exec", "p", "--json", "--", "true"]).exits(125).json();
    assert_eq!(refused["error"]["code"], "sandbox-not-ready");
    let by_state = |state: &str| {
        let listed = place.run(&["list", "--state", state, "--json"]).exits(0).json();
        listed.as_array().unwrap().len()
    };
    assert_eq!((by_state("paused"), by_state("ready")), (1, 0));
    place.run(&["resume", "p"]).says("ready\n").exits(0);
    place.run(&["exec", "p", "--", "true"]).exits(0);
    let json = place.run(&["extend", "p", "--idle-timeout", "2h", "--json"]).exits(0).json();
    assert_eq!(json["idle_timeout_secs"], 7200.0);
    assert_eq!(json["metadata"]["note"], "x y");
    let by_label = |label: &str| place.run(&["list", "--label", label, "--json"]).exits(0).json();
    assert_eq!(by_label("team=a")[0]["name"], "p");
    assert_eq!(by_label("team=b"), serde_json::json!([]));
    let with = |text: &str| place.run(&["list", "--metadata", text, "--json"]).exits(0).json();
    assert_eq!(with("note=x y")[0]["name"], "p");
    assert_eq!(with("note=x"), serde_json::json!([]));
}

#[test]
fn events_tell_what_happened() {
    let place = place!();
    let mut watcher =
        place.command(&["events", "--follow", "--since", "0", "--json"]).spawn().unwrap();
    let mut lines = BufReader::new(watcher.stdout.take().unwrap()).lines();
    place.run(&["create", "--name", "e"]).exits(0);
    place.run(&["exec", "e", "--", "true"]).exits(0);
    place.run(&["destroy", "e"]).exits(0);
    let mut kinds = Vec::new();
    while kinds.last().is_none_or(|kind| kind != "sandbox_destroyed") {
        let line = lines.next().unwrap().unwrap();
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        kinds.push(event["kind"].as_str().unwrap().to_owned());
    }
    watcher.kill().unwrap();
    watcher.wait().unwrap();
    for kind in ["sandbox_ready", "process_started", "process_ended"] {
        assert!(kinds.iter().any(|seen| seen == kind), "{kind} is missing: {kinds:?}");
    }
    let looked = place.run(&["events", "--kind", "process-ended"]).exits(0).stdout;
    assert_eq!(looked.lines().count(), 1, "{looked}");
}

#[test]
fn a_process_is_inspected_like_a_sandbox() {
    let place = place!();
    let id = start(&place, "echo seen; exit 3", &["--name", "pbuild"]);
    let waited = place.run(&["wait", &id, "--json"]).exits(3).json();
    assert_eq!(place.run(&["inspect", &id, "--json"]).exits(0).json(), waited);
    let text = place.run(&["inspect", &id]).exits(0).stdout;
    for line in ["command     echo seen; exit 3\n", "status      failed\n", "exit        3\n"] {
        assert!(text.contains(line), "{text}");
    }
    // Sandboxes come first, and are what is missing where there is neither.
    let sandbox = place.run(&["inspect", "pbuild", "--json"]).exits(0).json();
    assert_eq!(sandbox["sandbox_id"], waited["sandbox_id"]);
    let missing = place.run(&["inspect", "pnonesuch", "--json"]).exits(125).json();
    assert_eq!(missing["error"]["code"], "sandbox-not-found");
    let explained = place.run(&["inspect", &id, "--explain", "--json"]).exits(125).json();
    assert_eq!(explained["error"]["code"], "conflicting-options");
}

#[test]
fn the_adapter_answers_line_by_line() {
    let place = place!();
    let input = concat!(
        "{\"op\":\"ping\"}\n\n",
        "{\"op\":\"write\",\"path\":\"/tmp/d/a\",\"content\":\"text\"}\n",
        "{\"op\":\"read\",\"path\":\"/tmp/d/a\"}\n",
        "{\"op\":\"exec\",\"cmd\":\"echo out; echo err >&2; exit 3\",\"timeout\":10}\n",
        "{\"op\":\"exec\",\"cmd\":\"echo piece\",\"stream\":true}\n",
        "{\"op\":\"read\",\"path\":\"/tmp/none\"}\n",
        "nonsense\n",
        "{\"op\":\"ping\"}\n",
    );
    let answer = place.run_input(&["proxy"], input.as_bytes()).exits(0);
    let lines: Vec<serde_json::Value> =
        answer.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let ops: Vec<&str> = lines.iter().map(|line| line["op"].as_str().unwrap()).collect();
    let expected = ["pong", "write", "read", "exec", "output", "exec", "error", "error", "pong"];
    assert_eq!(ops, expected, "{}", answer.stdout);
    assert_eq!((&lines[2]["path"], &lines[2]["content"]), (&"/tmp/d/a".into(), &"text".into()));
    assert_eq!((&lines[3]["exit_code"], &lines[3]["stdout"]), (&3.into(), &"out\n".into()));
    assert_eq!(lines[3]["stderr"], "err\n");
    assert_eq!((&lines[4]["stream"], &lines[4]["data"]), (&"stdout".into(), &"piece\n".into()));
    assert!(lines[7]["message"].as_str().unwrap().starts_with("invalid request"));
    // The end of input ended the sandbox.
    assert_eq!(place.run(&["list", "--json"]).exits(0).json(), serde_json::json!([]));
    let answer = place.run_input(&["proxy"], b"{\"op\":\"destroy\"}\n{\"op\":\"ping\"}\n").exits(0);
    assert_eq!(answer.stdout, "{\"op\":\"destroy\"}\n");
}

#[test]
fn the_adapter_does_not_pass_off_other_bytes_as_a_file() {
    let place = place!();
    let input = concat!(
        "{\"op\":\"exec\",\"cmd\":\"printf '\\\\377a' > /tmp/b\"}\n",
        "{\"op\":\"read\",\"path\":\"/tmp/b\"}\n",
    );
    let answer = place.run_input(&["proxy"], input.as_bytes()).exits(0);
    let line: serde_json::Value =
        serde_json::from_str(answer.stdout.lines().nth(1).unwrap()).unwrap();
    assert_eq!(line["op"], "error", "{}", answer.stdout);
    let message = line["message"].as_str().unwrap();
    assert!(message.contains("is not UTF-8 text; `belljar cp "), "{message}");
}

#[test]
fn the_adapter_takes_its_sandbox_with_it_when_it_is_ended() {
    let place = place!();
    for (signal, status) in [("TERM", 143), ("HUP", 129), ("INT", 130)] {
        let mut adapter = hearing(&place, "--default-signal", &["proxy"]).spawn().unwrap();
        let mut input = adapter.stdin.take().unwrap();
        input.write_all(b"{\"op\":\"ping\"}\n").unwrap();
        let mut lines = BufReader::new(adapter.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "{\"op\":\"pong\"}\n");
        // Also in the middle of a command.
        input.write_all(b"{\"op\":\"exec\",\"cmd\":\"sleep 60\"}\n").unwrap();
        send(signal, &adapter);
        assert_eq!(adapter.wait().unwrap().code(), Some(status), "{signal}");
        assert_eq!(place.run(&["list", "--json"]).exits(0).json(), serde_json::json!([]));
    }
}

/// What programs do that want to be rid of it: they close its input and send a signal, or make sure with a second one.
#[test]
fn one_wish_to_end_is_enough_for_the_adapter_to_take_its_sandbox_with_it() {
    let place = place!();
    let endings: [(bool, &[&str]); 3] =
        [(true, &["TERM"]), (false, &["HUP", "TERM"]), (true, &["HUP", "INT", "TERM"])];
    for (closes, signals) in endings.repeat(5) {
        let mut adapter = hearing(&place, "--default-signal", &["proxy"]).spawn().unwrap();
        let mut input = adapter.stdin.take().unwrap();
        input.write_all(b"{\"op\":\"ping\"}\n").unwrap();
        let mut lines = BufReader::new(adapter.stdout.take().unwrap());
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "{\"op\":\"pong\"}\n");
        // Stopped meanwhile, so that it hears of all of it together.
        send("STOP", &adapter);
        let input = (!closes).then_some(input);
        signals.iter().for_each(|signal| send(signal, &adapter));
        send("CONT", &adapter);
        assert!(adapter.wait().unwrap().code().is_some(), "{signals:?}");
        drop(input);
        let left = place.run(&["list", "--json"]).exits(0).json();
        assert_eq!(left, serde_json::json!([]), "{signals:?}");
    }
}

#[test]
fn one_wish_to_end_is_enough_where_nobody_reads_what_the_adapter_says() {
    let place = place!();
    let mut adapter = hearing(&place, "--default-signal", &["proxy"]).spawn().unwrap();
    let mut input = adapter.stdin.take().unwrap();
    let much = r#"{"op":"exec","cmd":"yes | head -c 10000000","stream":true}"#;
    input.write_all(format!("{much}\n").as_bytes()).unwrap();
    // As much as there is room for.
    let (mut waiting, mut since) = (0, Instant::now());
    while waiting == 0 || since.elapsed() < Duration::from_secs(1) {
        std::thread::sleep(Duration::from_millis(50));
        let more = rustix::io::ioctl_fionread(adapter.stdout.as_ref().unwrap()).unwrap();
        if more > std::mem::replace(&mut waiting, more) {
            since = Instant::now();
        }
        assert_eq!(adapter.try_wait().unwrap(), None, "it is at work");
    }
    send("TERM", &adapter);
    let since = Instant::now();
    let status = loop {
        if let Some(status) = adapter.try_wait().unwrap() {
            break status;
        }
        if since.elapsed() > Duration::from_secs(60) {
            adapter.kill().unwrap();
            adapter.wait().unwrap();
            panic!("it did not end");
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    assert_eq!(status.code(), Some(143));
    assert_eq!(place.run(&["list", "--json"]).exits(0).json(), serde_json::json!([]));
}

#[test]
fn the_adapter_ends_when_all_that_it_says_is_written() {
    let place = place!();
    let mut adapter = hearing(&place, "--default-signal", &["proxy"]).spawn().unwrap();
    let mut input = adapter.stdin.take().unwrap();
    // More than there is room for until somebody reads.
    input.write_all(b"{\"op\":\"exec\",\"cmd\":\"yes | head -c 200000\"}\n").unwrap();
    drop(input);
    let output = rustix::io::dup(adapter.stdout.as_ref().unwrap()).unwrap();
    let room = u64::try_from(rustix::pipe::fcntl_getpipe_size(&output).unwrap()).unwrap();
    // The last page may stay unused.
    while rustix::io::ioctl_fionread(&output).unwrap() < room - 4096 {
        assert_eq!(adapter.try_wait().unwrap(), None, "it is at work");
        std::thread::yield_now();
    }
    drop(output);
    // With nothing left to say it would be gone before a sandbox that is made only now.
    place.run(&["run", "--ephemeral", "--", "true"]).exits(0);
    assert_eq!(adapter.try_wait().unwrap(), None, "there is more to say");
    let answer = Answer::from(adapter.wait_with_output().unwrap()).exits(0);
    assert!(answer.stdout.ends_with("}\n"), "only {} bytes came", answer.stdout.len());
    assert_eq!(answer.json()["stdout"].as_str().unwrap().len(), 200_000);
}

/// The binary with an open input, to which signals mean what they should, or nothing: `nohup` and scripts have them ignored.
fn hearing(place: &Place, how: &str, words: &[&str]) -> Command {
    let plain = place.command(words);
    let mut command = Command::new("env");
    let signals = if how == "--ignore-signal" { "HUP" } else { "HUP,INT,TERM" };
    command.arg(format!("{how}={signals}")).arg(plain.get_program()).args(plain.get_args());
    command.env_clear();
    command.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.current_dir(plain.get_current_dir().unwrap());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn send(signal: &str, to: &std::process::Child) {
    Command::new("kill").args(["-s", signal, &to.id().to_string()]).status().unwrap();
}

#[test]
fn an_adapter_that_should_outlive_the_terminal_does() {
    let place = place!();
    let mut adapter = hearing(&place, "--ignore-signal", &["proxy"]).spawn().unwrap();
    let mut input = adapter.stdin.take().unwrap();
    let mut lines = BufReader::new(adapter.stdout.take().unwrap());
    for _ in 0..2 {
        input.write_all(b"{\"op\":\"ping\"}\n").unwrap();
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        assert_eq!(line, "{\"op\":\"pong\"}\n");
        // Ignored from before it was there, so whatever comes of it has come when it is sent.
        send("HUP", &adapter);
    }
    drop(input);
    assert_eq!(adapter.wait().unwrap().code(), Some(0));
}

#[test]
fn an_adapter_whose_server_does_not_answer_can_be_ended() {
    let place = Place::new();
    let socket = place.path("silent");
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let server = format!("unix:{}", socket.display());
    let words = ["--server", &server, "proxy", "--name", "never-made"];
    let mut adapter = hearing(&place, "--default-signal", &words).spawn().unwrap();
    // When the name has come, the request for the sandbox has.
    let (mut connection, _) = listener.accept().unwrap();
    let mut received = Vec::new();
    while !received.windows(10).any(|text| text == b"never-made") {
        let mut piece = [0; 4096];
        let count = connection.read(&mut piece).unwrap();
        assert!(count > 0, "it ended first");
        received.extend_from_slice(&piece[..count]);
    }
    send("TERM", &adapter);
    let mut told = String::new();
    BufReader::new(adapter.stderr.as_mut().unwrap()).read_line(&mut told).unwrap();
    assert!(told.contains("ends when its sandbox is made"), "{told}");
    send("TERM", &adapter);
    assert_eq!(adapter.wait().unwrap().code(), Some(143));
}
