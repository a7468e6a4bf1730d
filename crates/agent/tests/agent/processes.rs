//! Starting programs, their output, input, signals and ends.

use belljar_protocol::v1::{
    Acknowledge, Cancel, Channel, Done, Forget, Input, Kill, ListProcesses, Ping, Pong, Start,
    User, frame::Body, kill::Scope,
};

use crate::host::{Agent, Run, WINDOW, argv, eventually, shell};

fn done() -> Body {
    Body::Done(Done { size: 0 })
}

fn kill(start: &Start, signal: i32, scope: Scope) -> Body {
    Body::Kill(Kill { process: start.process.clone(), signal, scope: scope.into() })
}

#[test]
fn reports_output_and_exit() {
    let (_agent, mut host) = Agent::configured();
    let run = host.run(&shell("echo out; echo err >&2; exit 3"));
    assert_eq!((run.out(), run.err(), run.code()), ("out\n", "err\n", 3));
    assert_eq!((run.exited.stdout_end, run.exited.stderr_end), (4, 4));
    assert!(!run.exited.timed_out && !run.exited.cancelled && !run.exited.memory_exceeded);
    assert!(run.exited.peak_rss_bytes > 0);
}

#[test]
fn reports_a_signal() {
    let (_agent, mut host) = Agent::configured();
    assert_eq!(host.run(&shell("kill -SEGV $$")).signal(), 11);
}

#[test]
fn gives_the_program_what_was_asked_for() {
    let (agent, mut host) = Agent::configured();
    let mut start = argv(&["sh", "-c", "pwd; echo $A $#; cat; id -u", "x", "a b", ""]);
    start.environment.insert("A".into(), "b c".into());
    start.working_directory = agent.directory.to_str().unwrap().into();
    let run = host.run(&start);
    let uid = rustix::process::getuid().as_raw();
    assert_eq!(run.out(), format!("{}\nb c 2\n{uid}\n", agent.directory.display()));
}

#[test]
fn inherits_nothing_from_the_agent() {
    let (_agent, mut host) = Agent::configured();
    let run = host.run(&shell("ls /proc/self/fd | tr '\\n' ' '; env | sort | tr '\\n' ' '"));
    // Descriptor 3 is the directory that `ls` reads.
    assert!(run.out().starts_with("0 1 2 3 "), "{}", run.out());
    assert!(run.out().contains("PATH=/usr/bin:/bin PWD="), "{}", run.out());
    let run = host.run(&shell("grep -E '^(SigBlk|SigIgn|NoNewPrivs)' /proc/self/status"));
    for line in run.out().lines().filter(|line| line.starts_with("Sig")) {
        assert!(line.ends_with("0000000000000000"), "{line}");
    }
    assert!(run.out().contains("NoNewPrivs:\t1"));
}

#[test]
fn can_open_its_streams_again() {
    let (_agent, mut host) = Agent::configured();
    let run = host.run(&shell("echo a > /dev/stdout; echo b > /dev/stderr"));
    assert_eq!((run.out(), run.err()), ("a\n", "b\n"));
}

#[test]
fn says_why_a_program_does_not_start() {
    let (agent, mut host) = Agent::configured();
    let plain = agent.path("plain");
    std::fs::write(&plain, b"\x7fnot a program").unwrap();
    let text = plain.to_str().unwrap();
    std::fs::set_permissions(&plain, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
    let executable = agent.path("executable");
    std::fs::copy(&plain, &executable).unwrap();
    std::fs::set_permissions(&executable, std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .unwrap();
    let directory = |path: &str| Start { working_directory: path.into(), ..argv(&["true"]) };
    let long = "x".repeat(140_000);
    for (start, code, stage) in [
        (argv(&["no-such-program"]), "program-not-found", "exec"),
        (argv(&["/nonexistent/program"]), "program-not-found", "exec"),
        (argv(&[text]), "program-not-executable", "exec"),
        (argv(&[executable.to_str().unwrap()]), "program-not-executable", "exec"),
        (argv(&["/tmp"]), "program-not-executable", "exec"),
        (argv(&["echo", &long]), "arguments-too-large", "exec"),
        (directory("/nonexistent"), "working-directory-invalid", "chdir"),
        (directory(text), "working-directory-invalid", "chdir"),
        (directory("/proc/self/fd/0"), "working-directory-invalid", "chdir"),
        (directory("/proc/self/cwd"), "working-directory-invalid", "chdir"),
        (argv(&["a\0b"]), "invalid-argument", ""),
        (argv(&[]), "invalid-argument", ""),
    ] {
        let failure = host.fail(&start);
        assert_eq!((failure.code.as_str(), failure.stage.as_str()), (code, stage), "{start:?}");
    }
    let other = User { uid: 4321, gid: 4321, ..User::default() };
    let failure = host.fail(&Start { user: Some(other), ..argv(&["true"]) });
    assert_eq!(failure.code, "user-invalid");
    // Nothing of it is left.
    let Body::ProcessList(list) = host.ask(Body::ListProcesses(ListProcesses {})) else { panic!() };
    assert_eq!(list.processes, []);
}

#[test]
fn an_id_names_one_process_until_it_is_forgotten() {
    let (_agent, mut host) = Agent::configured();
    let start = shell("read x");
    let start = Start { stdin: true, ..start };
    let (stream, pid) = host.start(&start);
    assert_eq!(host.fail(&start).code, "process-exists");
    let Body::ProcessList(list) = host.ask(Body::ListProcesses(ListProcesses {})) else { panic!() };
    assert_eq!(list.processes.len(), 1);
    assert_eq!((list.processes[0].pid, list.processes[0].running), (pid, true));
    let forget = || Body::Forget(Forget { process: start.process.clone(), silent: false });
    assert_eq!(host.ask_failing(forget()).code, "still-running");
    host.send(stream, Body::Input(Input { data: vec![], close: true }));
    host.finish(stream);
    assert_eq!(host.fail(&start).code, "process-exists");
    let Body::ProcessList(list) = host.ask(Body::ListProcesses(ListProcesses {})) else { panic!() };
    assert!(!list.processes[0].running && list.processes[0].exited.is_some());
    assert_eq!(host.ask(forget()), done());
    assert_eq!(host.ask_failing(forget()).code, "process-not-found");
    let Body::ProcessList(list) = host.ask(Body::ListProcesses(ListProcesses {})) else { panic!() };
    assert_eq!(list.processes, []);
    let (stream, _) = host.start(&start);
    host.send(stream, Body::Input(Input { data: vec![], close: true }));
    host.finish(stream);
    // Without a word, whether there was something to forget or not: the next answer is that of the next question.
    for _ in 0..2 {
        host.request(Body::Forget(Forget { process: start.process.clone(), silent: true }));
    }
    let Body::ProcessList(list) = host.ask(Body::ListProcesses(ListProcesses {})) else { panic!() };
    assert_eq!(list.processes, []);
}

#[test]
fn a_patient_host_is_told_of_every_start() {
    let (_agent, mut host) = Agent::configured();
    let patient = |line: &str| Start { patient: true, ..shell(line) };
    let forever = patient("sleep 1000");
    let (stream, pid) = host.start(&forever);
    assert!(pid > 0);
    let other = host.request(kill(&forever, 9, Scope::Group));
    assert_eq!(host.receive_on(other), done());
    assert_eq!(host.finish(stream).signal(), 9);

    let (stream, _) = host.start(&Start { stdin: true, ..patient("echo here; read x") });
    assert_eq!(host.read_until(stream, "\n"), "here\n");
    host.send(stream, Body::Input(Input { data: vec![], close: true }));
    assert_eq!(
        host.finish_after(stream, Run { stdout: b"here\n".to_vec(), ..Run::default() }).code(),
        1
    );

    let run = host.run(&patient("echo out; exit 3"));
    assert_eq!((run.out(), run.code()), ("out\n", 3));
    assert_eq!(host.fail(&Start { patient: true, ..argv(&["nowhere"]) }).code, "program-not-found");
}

/// How long an agent waits for more than the start to tell.
const YOUTH: std::time::Duration = std::time::Duration::from_millis(2);

/// As often as something is seen that chance brings about once in a while.
const OFTEN: usize = 10;

#[test]
fn a_patient_host_is_woken_once_for_a_short_command() {
    let (_agent, mut host) = Agent::configured();
    let mut at_once = 0;
    // A busy machine may take longer than the agent has patience; not every time.
    eventually("all at once", || {
        let begun = std::time::Instant::now();
        let stream = host.request(Body::Start(Start { patient: true, ..argv(&["true"]) }));
        let mut bodies = host.receive_at_once();
        let (count, took) = (bodies.len(), begun.elapsed());
        while !matches!(bodies.last(), Some(Body::Closed(_))) {
            bodies.push(host.receive_on(stream));
        }
        assert!(
            matches!(bodies[..], [Body::Started(_), Body::Exited(_), Body::Closed(_)]),
            "{bodies:?}"
        );
        assert!(count > 1 || took >= YOUTH, "of the start alone after {took:?}");
        at_once += usize::from(count == bodies.len());
        at_once == OFTEN
    });
}

#[test]
fn only_a_patient_host_waits_for_a_silent_command() {
    let (_agent, mut host) = Agent::configured();
    let mut time_to_start = |patient: bool| {
        let start = Start { patient, stdin: true, ..argv(&["cat"]) };
        let begun = std::time::Instant::now();
        let (stream, _) = host.start(&start);
        let took = begun.elapsed();
        host.send(stream, Body::Input(Input { data: vec![], close: true }));
        host.finish(stream);
        took
    };
    let mut earlier = 0;
    eventually("an impatient host that is told earlier", || {
        let took = time_to_start(true);
        assert!(took >= YOUTH, "after {took:?}");
        earlier += usize::from(time_to_start(false) < YOUTH);
        earlier == OFTEN
    });
}

#[test]
fn output_that_is_closed_early_is_no_end() {
    let (_agent, mut host) = Agent::configured();
    let start = Start { stdin: true, ..shell("echo last; exec >&- 2>&-; read x; exit 4") };
    let (stream, _) = host.start(&start);
    assert_eq!(host.read_until(stream, "\n"), "last\n");
    host.send(stream, Body::Input(Input { data: b"go on\n".to_vec(), close: false }));
    let said = Run { stdout: b"last\n".to_vec(), ..Run::default() };
    assert_eq!(host.finish_after(stream, said).code(), 4);
}

#[test]
fn holds_a_writer_back_that_nobody_reads() {
    let (_agent, mut host) = Agent::configured();
    let total = 3_000_000;
    let (stream, _) = host.start(&shell(&format!("yes | head -c {total}")));
    let mut run = Run::default();
    while run.stdout.len() < WINDOW as usize {
        let Body::Output(output) = host.receive_on(stream) else { panic!("not output") };
        assert_eq!(output.offset as usize, run.stdout.len());
        run.stdout.extend(output.data);
    }
    // A window full and not a byte more, however long we wait: the agent answers, but sends no output.
    assert_eq!(run.stdout.len(), WINDOW as usize);
    for _ in 0..20 {
        assert_eq!(host.ask(Body::Ping(Ping {})), Body::Pong(Pong {}));
    }
    host.acknowledge(stream, Channel::Stdout, u64::from(WINDOW));
    let run = host.finish_after(stream, run);
    assert_eq!(run.stdout.len(), total);
    assert!(run.stdout.chunks(2).all(|line| line == b"y\n"));
}

#[test]
fn an_acknowledgement_of_the_future_gives_nothing_up() {
    let (_agent, mut host) = Agent::configured();
    let (stream, _) = host.start(&shell("read x; echo kept"));
    host.acknowledge(stream, Channel::Stdout, u64::MAX);
    assert_eq!(host.finish(stream).out(), "kept\n");
}

#[test]
fn feeds_standard_input_at_the_programs_pace() {
    let (_agent, mut host) = Agent::configured();
    let (stream, _) = host.start(&Start { stdin: true, ..shell("cat") });
    let sent: Vec<u8> = (0..1_000_000u32).flat_map(u32::to_le_bytes).take(1_000_000).collect();
    let mut run = Run::default();
    let (mut offset, mut acknowledged) = (0, 0);
    while run.stdout.len() < sent.len() {
        while offset < sent.len() && offset - acknowledged < WINDOW as usize {
            let data = sent[offset..sent.len().min(offset + 32 * 1024)].to_vec();
            offset += data.len();
            host.send(stream, Body::Input(Input { data, close: offset == sent.len() }));
        }
        match host.receive_on(stream) {
            Body::Acknowledge(Acknowledge { channel, offset }) => {
                assert_eq!(channel, i32::from(Channel::Stdin));
                acknowledged = offset as usize;
            }
            Body::Output(output) => {
                run.stdout.extend(output.data);
                host.acknowledge(stream, Channel::Stdout, run.stdout.len() as u64);
            }
            // The last of its output may still be on its way.
            Body::Exited(exited) => run.exited = exited,
            other => panic!("{other:?}"),
        }
    }
    let run = host.finish_after(stream, run);
    assert_eq!(run.code(), 0);
    assert_eq!(run.stdout, sent);
}

#[test]
fn refuses_more_input_than_the_window() {
    let (_agent, mut host) = Agent::configured();
    let (stream, _) = host.start(&Start { stdin: true, ..argv(&["sleep", "1000"]) });
    // The pipe takes some, the window some, and one chunk may be on its way.
    for _ in 0..8 {
        host.send(stream, Body::Input(Input { data: vec![0; 64 * 1024], close: false }));
    }
    loop {
        match host.receive_on(stream) {
            Body::Acknowledge(_) => {}
            Body::Failure(failure) => break assert_eq!(failure.code, "window-exceeded"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn signals_the_leader_or_the_group() {
    let (_agent, mut host) = Agent::configured();
    let line = "trap 'echo got; exit 5' USR1; sh -c 'trap \"echo child\" USR1; echo ready; \
                while :; do read x; done' & wait; wait";
    let start = Start { stdin: false, ..shell(line) };
    let (stream, _) = host.start(&start);
    host.read_until(stream, "ready\n");
    let answer = host.request(kill(&start, 10, Scope::Leader));
    let mut codes = Vec::new();
    let mut text = Vec::new();
    // The answer and the output may come in either order.
    while codes.is_empty() {
        match host.receive().unwrap() {
            (of, Body::Done(_)) => assert_eq!(of, answer),
            (_, Body::Output(output)) => text.extend(output.data),
            (_, Body::Exited(exited)) => codes.push(exited.status),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(text, b"got\n");
    // The leader is gone, its child is not, until the tree is killed.
    assert_eq!(host.ask_failing(kill(&start, 15, Scope::Group)).code, "not-running");
    assert_eq!(host.ask_failing(kill(&start, 15, Scope::Tree)).code, "invalid-argument");
    let answer = host.request(kill(&start, 9, Scope::Tree));
    let mut ends = [host.receive().unwrap(), host.receive().unwrap()].map(|(of, _)| of);
    ends.sort_unstable();
    assert_eq!(ends, [stream, answer]);
}

#[test]
fn refuses_signals_that_are_none() {
    let (_agent, mut host) = Agent::configured();
    let start = argv(&["sleep", "1000"]);
    host.start(&start);
    for signal in [-1, 0, 65, i32::MAX] {
        assert_eq!(host.ask_failing(kill(&start, signal, Scope::Leader)).code, "invalid-argument");
    }
    let nobody = argv(&["true"]);
    assert_eq!(host.ask_failing(kill(&nobody, 9, Scope::Tree)).code, "process-not-found");
}

#[test]
fn a_cancelled_process_may_say_goodbye() {
    let (_agent, mut host) = Agent::configured();
    let start =
        shell("exec 2>&-; trap 'echo bye; exit 7' TERM; echo ready; while :; do sleep 0.01; done");
    let (stream, _) = host.start(&start);
    host.read_until(stream, "ready\n");
    let cancel = Body::Cancel(Cancel { process: start.process.clone(), grace_ms: 60_000 });
    let answer = host.request(cancel);
    assert_eq!(host.receive_on(answer), done());
    let Body::Output(output) = host.receive_on(stream) else { panic!("not output") };
    assert_eq!((output.data.as_slice(), output.offset), (&b"bye\n"[..], 6));
    let Body::Exited(exited) = host.receive_on(stream) else { panic!("not the end") };
    assert!(exited.cancelled && !exited.timed_out);
    assert_eq!(exited.status, Some(belljar_protocol::v1::exited::Status::Code(7)));
}

#[test]
fn output_of_a_background_child_follows_the_exit() {
    let (_agent, mut host) = Agent::configured();
    let start = shell("(read x < /proc/self/fd/0; sleep 0.1; echo late) & echo early");
    let (stream, _) = host.start(&start);
    let Body::Output(output) = host.receive_on(stream) else { panic!("not output") };
    assert_eq!(output.data, b"early\n");
    let Body::Exited(exited) = host.receive_on(stream) else { panic!("not the end") };
    assert_eq!(exited.stdout_end, 6);
    let Body::Output(output) = host.receive_on(stream) else { panic!("not output") };
    assert_eq!((output.data.as_slice(), output.offset), (&b"late\n"[..], 6));
    assert!(matches!(host.receive_on(stream), Body::Closed(_)));
}

#[test]
fn many_processes_share_a_connection() {
    let (_agent, mut host) = Agent::configured();
    let count = 20;
    let streams: Vec<u64> = (0..count)
        .map(|number| host.request(Body::Start(shell(&format!("echo {number}; exit {number}")))))
        .collect();
    let mut output = vec![Vec::new(); count];
    let mut codes = vec![None; count];
    let mut closed = 0;
    while closed < count {
        let (stream, body) = host.receive().unwrap();
        let index = streams.iter().position(|known| *known == stream).unwrap();
        match body {
            Body::Output(piece) => output[index].extend(piece.data),
            Body::Exited(exited) => codes[index] = exited.status,
            Body::Closed(_) => closed += 1,
            Body::Started(_) => {}
            other => panic!("{other:?}"),
        }
    }
    for index in 0..count {
        assert_eq!(output[index], format!("{index}\n").into_bytes());
        let code = belljar_protocol::v1::exited::Status::Code(index as i32);
        assert_eq!(codes[index], Some(code));
    }
}
