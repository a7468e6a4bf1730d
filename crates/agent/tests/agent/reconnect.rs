//! A host that goes away and comes back, or a second one.

use belljar_protocol::v1::{Attach, Channel, ListProcesses, frame::Body};

use crate::host::{Agent, Run, WINDOW, eventually, shell};

fn attach(process: &str, stdout_offset: u64) -> Body {
    Body::Attach(Attach { process: process.into(), stdout_offset, stderr_offset: 0 })
}

#[test]
fn no_byte_is_lost_when_a_host_comes_back() {
    let (agent, mut host) = Agent::configured();
    // More than all the acknowledging below lets through, so that it is still running then.
    let lines = 400_000;
    let start = shell(&format!("seq {lines}"));
    let (mut stream, _) = host.start(&start);
    let mut run = Run::default();
    let mut connections = 0;
    // Goes away in the middle of things, several times, with some output seen and never acknowledged.
    while connections < 10 {
        let Body::Output(output) = host.receive_on(stream) else { panic!("not output") };
        assert_eq!(output.offset, run.stdout.len() as u64);
        run.stdout.extend(output.data);
        host.acknowledge(stream, Channel::Stdout, run.stdout.len() as u64 / 2);
        if run.stdout.len() as u64 / 100_000 > connections {
            connections += 1;
            host = agent.connect();
            stream = host.request(attach(&start.process, run.stdout.len() as u64));
            assert!(matches!(host.receive_on(stream), Body::Started(_)));
        }
    }
    let run = host.finish_after(stream, run);
    let expected: String = (1..=lines).map(|number| format!("{number}\n")).collect();
    assert!(run.out() == expected);
}

#[test]
fn processes_go_on_without_a_host() {
    let (agent, mut host) = Agent::configured();
    let done = agent.path("done");
    let start =
        shell(&format!("read x < {0}.go; echo out; echo err >&2; touch {0}", done.display()));
    let go = agent.path("done.go");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &go,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    host.start(&start);
    drop(host);
    std::fs::write(&go, b"go\n").unwrap();
    eventually("it goes on", || done.exists());
    let mut host = agent.connect();
    eventually("it ends", || {
        let Body::ProcessList(list) = host.ask(Body::ListProcesses(ListProcesses {})) else {
            panic!()
        };
        !list.processes[0].running
    });
    // Twice: the end can be heard again until it is forgotten.
    for _ in 0..2 {
        let stream = host.request(attach(&start.process, 0));
        assert!(matches!(host.receive_on(stream), Body::Started(_)));
        let mut texts = [Vec::new(), Vec::new()];
        loop {
            match host.receive_on(stream) {
                Body::Output(output) => texts[output.channel as usize].extend(output.data),
                Body::Exited(exited) => assert_eq!((exited.stdout_end, exited.stderr_end), (4, 4)),
                Body::Closed(_) => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(texts, [b"out\n", b"err\n"]);
    }
}

#[test]
fn the_last_to_attach_has_the_process() {
    let (agent, mut first) = Agent::configured();
    let start = shell("echo hello; sleep 1000");
    let (stream, _) = first.start(&start);
    first.read_until(stream, "hello\n");
    let mut second = agent.connect();
    let attached = second.request(attach(&start.process, 3));
    assert!(matches!(second.receive_on(attached), Body::Started(_)));
    let Body::Failure(failure) = first.receive_on(stream) else { panic!("not taken over") };
    assert_eq!(failure.code, "taken-over");
    assert_eq!(second.ask_failing(attach("nobody", 0)).code, "process-not-found");
}

#[test]
fn what_a_process_left_in_its_pipe_is_kept_while_nobody_listens() {
    let (agent, mut host) = Agent::configured();
    // More than a window, less than a window and a pipe: it ends although nobody reads.
    let total = u64::from(WINDOW) + 50_000;
    host.start(&shell(&format!("yes | head -c {total}")));
    drop(host);
    let mut host = agent.connect();
    eventually("it ends, and all of it is there", || {
        let Body::ProcessList(list) = host.ask(Body::ListProcesses(ListProcesses {})) else {
            panic!()
        };
        let state = list.processes.first().expect("known");
        !state.running && state.stdout_end == total && state.stdout_kept_from == 0
    });
}

#[test]
fn what_nobody_takes_is_dropped_and_counted_after_the_end() {
    let (agent, mut host) = Agent::configured();
    let done = agent.path("done");
    let total = 1_000_000;
    let line = format!("(yes | head -c {total}; touch {}) & exit 0", done.display());
    let start = shell(&line);
    let (stream, _) = host.start(&start);
    // Hear of the end, acknowledge nothing, leave.
    while !matches!(host.receive_on(stream), Body::Exited(_)) {}
    drop(host);
    eventually("the child is not held back for ever", || done.exists());
    let mut host = agent.connect();
    let mut state = None;
    eventually("all of it is read", || {
        let Body::ProcessList(list) = host.ask(Body::ListProcesses(ListProcesses {})) else {
            panic!()
        };
        state = list.processes.first().cloned();
        state.as_ref().is_some_and(|state| state.stdout_end == total)
    });
    let state = state.unwrap();
    assert_eq!(state.exited.unwrap().dropped_bytes, state.stdout_kept_from);
    assert!(state.stdout_kept_from > 0);
}
