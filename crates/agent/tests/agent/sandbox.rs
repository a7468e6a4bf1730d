//! What concerns the sandbox as a whole: lease, memory, usage, denied programs.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;

use belljar_protocol::v1::{Configure, Lease, Usage, event::What, frame::Body};

use crate::host::{Agent, argv, configuration, shell};

#[test]
fn an_idle_sandbox_ends_itself() {
    let (mut agent, mut host) = Agent::configured();
    let (stream, _) = host.start(&argv(&["sleep", "0.5"]));
    // Shorter than the process runs, which is not idle.
    let lease = host.request(Body::Lease(Lease { idle_ms: 100, hard_ms: 0 }));
    assert!(matches!(host.receive_on(lease), Body::Done(_)));
    assert_eq!(host.finish(stream).code(), 0);
    let Some((0, Body::Event(event))) = host.receive() else { panic!("no event") };
    assert!(matches!(event.what, Some(What::LeaseEnded(ended)) if ended.idle));
    assert!(agent.child.wait().unwrap().success());
}

#[test]
fn a_hard_lease_ends_a_busy_sandbox() {
    let (mut agent, mut host) = Agent::configured();
    let (stream, pid) = host.start(&argv(&["sleep", "1000"]));
    let lease = Lease { idle_ms: 0, hard_ms: 100 };
    assert!(matches!(host.ask(Body::Lease(lease)), Body::Done(_)));
    loop {
        match host.receive() {
            Some((0, Body::Event(event))) => {
                assert!(matches!(event.what, Some(What::LeaseEnded(ended)) if !ended.idle));
            }
            // It is lost: it did not end by itself, and nobody is told so.
            Some((of, told)) => assert!(of == stream && !matches!(told, Body::Exited(_))),
            None => break,
        }
    }
    assert!(agent.child.wait().unwrap().success());
    crate::host::eventually("it is killed", || !crate::host::is_alive(pid));
}

#[test]
fn memory_above_the_watch_is_the_end() {
    let (_agent, mut host) =
        Agent::configured_with(Configure { memory_watch_bytes: 64 << 20, ..configuration() });
    // `tail` keeps everything until its input ends, and until somebody takes it.
    let line = "head -c 300000000 /dev/zero | tail -c 290000000 | { sleep 60; wc -c; }";
    let run = host.run(&shell(line));
    assert!(run.exited.memory_exceeded);
    let run = host.run(&shell("head -c 3000000 /dev/zero | tail -c 2000000 | wc -c"));
    assert!(!run.exited.memory_exceeded);
    assert_eq!(run.out(), "2000000\n");
}

#[test]
fn usage_counts_what_runs_and_what_ran() {
    let (_agent, mut host) = Agent::configured();
    let Body::UsageReport(before) = host.ask(Body::Usage(Usage {})) else { panic!() };
    host.run(&shell("i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done"));
    let start = argv(&["sleep", "1000"]);
    host.start(&start);
    let Body::UsageReport(after) = host.ask(Body::Usage(Usage {})) else { panic!() };
    assert_eq!(before.processes, 0);
    // The process and its supervisor; the one of the shell may be about to leave.
    assert!((2..=3).contains(&after.processes), "{after:?}");
    assert!(after.resident_bytes > 0);
    assert!(after.user_us > before.user_us);
    assert!(after.uptime_ms >= before.uptime_ms);
}

#[test]
fn a_program_outside_the_list_is_denied_and_reported() {
    let (_agent, mut host) =
        Agent::configured_with(Configure { programs: vec!["echo".into()], ..configuration() });
    let stream = host.request(Body::Start(argv(&["curl", "http://x"])));
    let mut denied = None;
    let mut failed = None;
    while denied.is_none() || failed.is_none() {
        match host.receive().unwrap() {
            (0, Body::Event(event)) => denied = event.what,
            (of, Body::Failure(failure)) => {
                assert_eq!(of, stream);
                failed = Some(failure);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(failed.unwrap().code, "program-denied");
    assert!(matches!(denied, Some(What::ProgramDenied(denied)) if denied.name == b"curl"));
    assert_eq!(host.run(&argv(&["echo", "allowed"])).out(), "allowed\n");
}

#[test]
fn a_report_from_inside_reaches_every_host() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let socket = agent.path("service");
    let configure =
        Configure { service_socket: socket.to_str().unwrap().into(), ..configuration() };
    assert!(matches!(host.ask(Body::Configure(configure)), Body::Configured(_)));
    // Garbage, an unfinished line and silence concern nobody.
    let _silent = UnixStream::connect(&socket).unwrap();
    for text in ["nonsense\n", "denied", "denied \n"] {
        UnixStream::connect(&socket).unwrap().write_all(text.as_bytes()).unwrap();
    }
    UnixStream::connect(&socket).unwrap().write_all(b"denied nc\n").unwrap();
    let Some((0, Body::Event(event))) = host.receive() else { panic!("no event") };
    let Some(What::ProgramDenied(denied)) = event.what else { panic!("{event:?}") };
    assert_eq!((denied.name.as_slice(), denied.pid), (&b"nc"[..], std::process::id()));
}

#[test]
fn a_stand_in_fails_as_shells_do() {
    let output = Command::new(env!("CARGO_BIN_EXE_belljar-agent"))
        .arg0("/usr/bin/cu\x1brl")
        .arg("listen=3")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(126));
    assert_eq!(output.stdout, b"");
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(text, "belljar: program `cu?rl` is not in this sandbox's programs\n");
}
