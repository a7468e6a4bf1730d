//! The backend `oci` with every runtime that is installed: the probes, and what is particular to it. The same probes in
//! containers of an engine.
//!
//! Every probe of kernel and privilege runs behind `runc`, gVisor, each engine and gVisor in an engine, but for two. Landlock is
//! not there in gVisor's kernel. Links that are swapped a thousand times during the start (`starts`) would take minutes; here
//! each place is tried once, and an engine makes its roots itself. Of the abuse of resources (`resources`), limits of processes,
//! memory, disk and files, and processes that will not end, run behind each wall; ten thousand orphans take gVisor more than a
//! minute; CPU and output are held by cgroups around the runtime and by the agent, which are the same everywhere (that the
//! cgroup is told is looked at from outside). Of the network,
//! whatever depends on who sends runs behind each wall; names, TLS, HTTP and credentials (`inspected`, `clients`) are decided in the
//! server behind the same doors.
//!
//! What a probe may find on gVisor and nowhere else is listed with the reason: it is answered by gVisor's own kernel, and
//! the host does not notice. Runtimes are found as the server finds them; `./test` has gVisor in a directory of its own.

#![forbid(unsafe_code)]

mod common;
#[path = "common/walls.rs"]
mod walls;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use belljar_testkit::{
    Finished, Installation, Mode, PROMPT, Turn, matrix, run_in, skip, wait_until,
};
use serde_json::Value;
use walls::{OF_GVISOR, hold};

matrix! {
    runtimes walls_hold_against_the_probes,
    engines walls_of_containers_hold_against_the_probes,
    runtimes the_class_is_that_of_what_runs,
    runtimes what_enforces_the_network_is_told,
    runtimes processor_time_is_limited_once_the_runtime_runs,
    runtimes commands_at_once_end_alone,
    runtimes a_killed_server_finds_sandbox_and_process_again,
    runtimes ports_inside_are_reached_from_outside,
}

fn walls_hold_against_the_probes(belljar: &Installation) {
    let known = if belljar.mode() == Mode::Runsc { OF_GVISOR } else { &[] };
    hold(belljar, &belljar.create(&[]), known);
}

fn walls_of_containers_hold_against_the_probes(belljar: &Installation) {
    walls_hold_against_the_probes(belljar);
}

fn the_class_is_that_of_what_runs(belljar: &Installation) {
    let runtime = belljar.mode().runtime().expect("a mode with a runtime");
    let sandbox = belljar.create(&[]);
    let isolation = sandbox.inspect()["isolation"].clone();
    let class = if runtime == "runsc" { "kernel" } else { "namespace" };
    assert_eq!((&isolation["runtime"], &isolation["class"]), (&runtime.into(), &class.into()));
    // Not by its name alone: the kernel that answers inside is the host's, or it is not.
    let inside = sandbox.exec(["uname", "-v"]).expect_success().text();
    let outside = Command::new("uname").arg("-v").output().expect("it is everywhere").stdout;
    assert_eq!(inside.as_bytes() == outside, runtime == "runc", "{inside}");
}

/// gVisor has a network stack of its own and can use the host's: which of the two is in force is no secret.
fn what_enforces_the_network_is_told(belljar: &Installation) {
    let gvisor = belljar.mode() == Mode::Runsc;
    let runtime = belljar.mode().runtime().expect("a mode with a runtime");
    for (network, words) in
        [("none", "gVisor's own network stack"), ("full", "gVisor in host mode")]
    {
        let flags = ["--backend", "oci", "--runtime", runtime, "--network", network];
        let explained = belljar.run([&["create", "--explain"][..], &flags].concat());
        let explained = explained.expect_success();
        let told = explained.text() + &explained.stderr;
        assert_eq!(told.contains(words), gvisor, "{network}: {explained}");
        assert!(told.contains("network namespace") || network == "none", "{explained}");
    }
}

/// A runtime starts without the limit; a sandbox is never without it.
fn processor_time_is_limited_once_the_runtime_runs(belljar: &Installation) {
    for (cpus, percent) in [("0.5", 50), ("2", 200)] {
        let sandbox = belljar.create(&["--cpus", cpus]);
        let (process, _) = sandbox.agent();
        let Some((quota, period)) = processor_time(process) else {
            return skip("processor_time_is_limited_once_the_runtime_runs", "no cpu controller");
        };
        assert_eq!(quota * 100, period * percent, "--cpus {cpus}");
        sandbox.destroy().expect_success();
    }
}

/// How much of which time the cgroup of a process may have, in the words of either version.
fn processor_time(process: u32) -> Option<(u64, u64)> {
    let read = |path: String| std::fs::read_to_string(path).ok();
    let groups = read(format!("/proc/{process}/cgroup"))?;
    let mounts = read("/proc/self/mounts".to_owned())?;
    let mount = |kind: &str, option: &str| {
        let fields = mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>());
        let has = |fields: &Vec<&str>| {
            fields.get(2) == Some(&kind)
                && fields.get(3).is_some_and(|all| all.split(',').any(|one| one == option))
        };
        fields.into_iter().find(has).map(|fields| fields[1].to_owned())
    };
    groups.lines().find_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        if controllers.is_empty() {
            let text = read(format!("{}{path}/cpu.max", mount("cgroup2", "rw")?))?;
            let (quota, period) = text.trim().split_once(' ')?;
            return Some((quota.parse().ok()?, period.parse().ok()?));
        }
        controllers.split(',').find(|&one| one == "cpu")?;
        let directory = mount("cgroup", "cpu")? + path;
        let number = |name| read(format!("{directory}/cpu.cfs_{name}_us"))?.trim().parse().ok();
        Some((number("quota")?, number("period")?))
    })
}

/// Whoever is killed takes along what it has left behind, and nothing of another's.
fn commands_at_once_end_alone(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let start = |number: &str| {
        let line = format!("(setsid sleep {number}1 &); exec sleep {number}2");
        let start = ["exec", "--detach", "--json", sandbox.id(), "--", "sh", "-c", &line];
        started(&belljar.run(start))
    };
    let processes = ["100", "200", "300"].map(start);
    let runs = || {
        let line = "cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' ' '; true";
        let all = sandbox.exec(["sh", "-c", line]).expect_success().text();
        ["1001", "1002", "2001", "2002", "3001", "3002"].map(|sleep| all.contains(sleep))
    };
    let becomes = |wanted: [bool; 6]| {
        let seen = wait_until(PROMPT * 2, || (runs() == wanted).then_some(()));
        assert!(seen.is_some(), "{:?} and not {wanted:?}", runs());
    };
    becomes([true; 6]);
    // The one that was first, one of the others, and after a fourth the last.
    for (process, left) in
        [(0, [false, false, true, true, true, true]), (1, [false, false, false, false, true, true])]
    {
        belljar.run(["cancel", "--grace", "0", &processes[process]]).expect_success();
        becomes(left);
    }
    sandbox.exec(["true"]).expect_success();
    belljar.run(["cancel", "--grace", "0", &processes[2]]).expect_success();
    becomes([false; 6]);
}

fn a_killed_server_finds_sandbox_and_process_again(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let agent = sandbox.agent();
    let line = "echo before; until [ -e /workspace/go ]; do sleep 0.05; done; echo after; exit 7";
    let start = ["exec", "--detach", "--json", sandbox.id(), "--", "sh", "-c", line];
    let process = started(&belljar.run(start));
    let server = belljar.server_process().to_string();
    let killed = Command::new("kill").args(["-9", &server]).status();
    assert!(killed.is_ok_and(|status| status.success()));
    // The next command starts another server, which knows them.
    sandbox.exec(["touch", "/workspace/go"]).expect_success();
    assert_ne!(belljar.server_process().to_string(), server);
    assert!(sandbox.agent_is(agent), "the sandbox was replaced");
    let log = belljar.run(["logs", "--follow", &process]);
    assert_eq!(log.text(), "before\nafter\n", "{log}");
    belljar.run(["wait", &process]).expect_code(7);
    sandbox.destroy().expect_success();
    belljar.assert_nothing_left();
}

/// The id of a process that was started and left alone.
fn started(finished: &Finished) -> String {
    let told = finished.json();
    let process = told["process"]["process_id"].as_str();
    process.unwrap_or_else(|| panic!("no process: {finished}")).to_owned()
}

/// Answers once with what it was told, then waits for the next.
const ECHO: &str = r#"
import socket
s = socket.create_server(('127.0.0.1', 9000))
print('listening', flush=True)
while True:
    c, _ = s.accept()
    told = c.recv(4096)
    c.sendall(b'HTTP/1.0 200 OK\r\nconnection: close\r\n\r\n' + told)
    c.close()
"#;

/// Whatever the network of a sandbox is: `none` has no way in either, but for those who ask the server.
fn ports_inside_are_reached_from_outside(belljar: &Installation) {
    let mut server = belljar.start(["serve", "--json", "--listen", "127.0.0.1:0"]);
    let told: Value = serde_json::from_str(&server.line()).expect("JSON");
    let addresses = told["addresses"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let address = addresses.filter_map(|one| one.strip_prefix("http://")).next();
    let address = address.unwrap_or_else(|| panic!("no port in {told}")).to_owned();
    let sandbox = belljar.create(&[]);
    let serve = ["exec", "--detach", "--json", sandbox.id(), "--", "/usr/bin/python3", "-c", ECHO];
    let process = started(&belljar.run(serve));
    let mut inside = belljar.start(["logs", "--follow", &process]);
    assert_eq!(inside.line(), "listening\n");

    let mut forward = belljar.start(["forward", "--json", sandbox.id(), "0:9000", "0:9001"]);
    let mut listens = || -> String {
        let told: Value = serde_json::from_str(&forward.line()).expect("JSON");
        told["address"].as_str().unwrap_or_else(|| panic!("no address in {told}")).to_owned()
    };
    let (open, closed) = (listens(), listens());
    assert!(ask(&open, "GET / HTTP/1.0\r\n\r\n").ends_with("GET / HTTP/1.0\r\n\r\n"));
    assert_eq!(ask(&closed, "nobody listens"), "");

    let expose = ["expose", sandbox.id(), "9000", "--public", "--json"];
    let shown = belljar.run(expose).expect_success().json();
    let url = shown["url"].as_str().unwrap_or_else(|| panic!("no address in {shown}"));
    let name = url.trim_start_matches("http://").trim_end_matches('/');
    let request = format!("GET /shown HTTP/1.1\r\nhost: {name}\r\nconnection: close\r\n\r\n");
    let answer = ask(&address, &request);
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("GET /shown"), "{answer}");
    belljar.run(["hide", sandbox.id(), "9000"]).expect_success();
    let answer = ask(&address, &request);
    assert!(answer.starts_with("HTTP/1.1 401"), "{answer}");
}

/// Says something and gives what comes until the other side ends.
fn ask(address: &str, words: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("somebody listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("our own socket");
    stream.write_all(words.as_bytes()).expect("it was accepted");
    let mut answer = String::new();
    // Whoever is not let in may see the connection reset.
    let _ = stream.read_to_string(&mut answer);
    answer
}

#[test]
fn an_ordinary_user_is_refused() {
    run_in(Mode::Rootless, "runtimes::an_ordinary_user_is_refused", Turn::shared, |belljar| {
        belljar.find_runtimes();
        for flags in [&["--backend", "oci"][..], &["--backend", "oci", "--runtime", "runc"]] {
            let refused = belljar.try_create(flags).err();
            let refused = refused.unwrap_or_else(|| panic!("{flags:?} made a sandbox"));
            refused.expect_code("backend-unavailable");
            let told = refused.finished.json()["error"].clone();
            let message = told["message"].as_str().unwrap_or_default();
            if message.contains("not found") {
                return skip("runtimes::an_ordinary_user_is_refused", message);
            }
            assert_eq!(message.matches("needs root").count(), 1, "{told}");
            assert_eq!(told["remedy"], "run as root, or use `--backend native`", "{told}");
        }
        // The twin: what the remedy names works.
        belljar.create(&["--backend", "native"]).exec(["true"]).expect_success();
    });
}
