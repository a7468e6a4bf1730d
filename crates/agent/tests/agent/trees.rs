//! Everything below a process ends when it is to end, however far it has gone.

use belljar_protocol::v1::{Cancel, Kill, Start, frame::Body, kill::Scope};

use crate::host::{Agent, eventually, is_alive, read_pid, shell};

/// A daemon that has left its session, its parents and its pipes, and writes its number to a file.
fn daemon(agent: &Agent) -> String {
    let file = agent.path("daemon");
    format!(
        "(setsid sh -c 'sh -c \"trap : TERM HUP; echo \\$\\$ > {0}.new; mv {0}.new {0}; \
         while :; do sleep 0.05; done\" > /dev/null 2>&1 &' &)",
        file.display()
    )
}

#[test]
fn a_timeout_kills_daemons_too() {
    let (agent, mut host) = Agent::configured();
    let line = format!("{}; trap : TERM; while :; do sleep 0.05; done", daemon(&agent));
    // Long enough that the daemon has written its number by then.
    let start = Start { timeout_ms: 1000, grace_ms: 50, ..shell(&line) };
    let (stream, main) = host.start(&start);
    let daemon = read_pid(&agent.path("daemon"));
    assert!(is_alive(daemon) && is_alive(main));
    let run = host.finish(stream);
    assert!(run.exited.timed_out);
    assert_eq!(run.signal(), 9);
    eventually("the daemon ends", || !is_alive(daemon));
}

#[test]
fn a_daemon_outlives_a_process_that_ends_in_time() {
    let (agent, mut host) = Agent::configured();
    let start = Start { timeout_ms: 60_000, ..shell(&daemon(&agent)) };
    let (stream, _) = host.start(&start);
    let daemon = read_pid(&agent.path("daemon"));
    assert_eq!(host.finish(stream).code(), 0);
    assert!(is_alive(daemon));
    let kill = Kill { process: start.process.clone(), signal: 9, scope: Scope::Tree.into() };
    assert!(matches!(host.ask(Body::Kill(kill)), Body::Done(_)));
    eventually("the daemon ends", || !is_alive(daemon));
}

#[test]
fn a_process_that_leaves_on_request_takes_its_tree_along() {
    let (agent, mut host) = Agent::configured();
    let line = format!(
        "exec 2>&-; {}; trap 'exit 0' TERM; echo up; while :; do sleep 0.05; done",
        daemon(&agent)
    );
    let start = shell(&line);
    let (stream, _) = host.start(&start);
    let daemon = read_pid(&agent.path("daemon"));
    host.read_until(stream, "up\n");
    let cancel = Body::Cancel(Cancel { process: start.process.clone(), grace_ms: 60_000 });
    assert!(matches!(host.ask(cancel), Body::Done(_)));
    let Body::Exited(exited) = host.receive_on(stream) else { panic!("not the end") };
    assert!(exited.cancelled);
    eventually("the daemon ends", || !is_alive(daemon));
}

#[test]
fn a_killed_supervisor_takes_its_tree_along() {
    let (agent, mut host) = Agent::configured();
    let start = shell(&format!("{}; sleep 1000", daemon(&agent)));
    let (stream, main) = host.start(&start);
    let daemon = read_pid(&agent.path("daemon"));
    // What a workload of the same user could do.
    let stat = std::fs::read_to_string(format!("/proc/{main}/stat")).unwrap();
    let supervisor: i32 =
        stat.rsplit(')').next().unwrap().split(' ').nth(2).unwrap().parse().unwrap();
    assert_ne!(supervisor as u32, agent.child.id());
    let supervisor = rustix::process::Pid::from_raw(supervisor).unwrap();
    rustix::process::kill_process(supervisor, rustix::process::Signal::KILL).unwrap();
    assert_eq!(host.finish(stream).signal(), 9);
    eventually("everything ends", || !is_alive(daemon) && !is_alive(main));
    // Others are not touched by it.
    assert_eq!(host.run(&shell("echo on")).out(), "on\n");
}

#[test]
fn a_stopped_supervisor_does_not_save_its_tree() {
    let (agent, mut host) = Agent::configured();
    let start = shell(&format!("{}; sleep 1000", daemon(&agent)));
    let (stream, main) = host.start(&start);
    let daemon = read_pid(&agent.path("daemon"));
    let stat = std::fs::read_to_string(format!("/proc/{main}/stat")).unwrap();
    let supervisor: i32 =
        stat.rsplit(')').next().unwrap().split(' ').nth(2).unwrap().parse().unwrap();
    let supervisor = rustix::process::Pid::from_raw(supervisor).unwrap();
    rustix::process::kill_process(supervisor, rustix::process::Signal::STOP).unwrap();
    let kill = Kill { process: start.process.clone(), signal: 9, scope: Scope::Tree.into() };
    assert!(matches!(host.ask(Body::Kill(kill)), Body::Done(_)));
    host.finish(stream);
    eventually("everything ends", || !is_alive(daemon) && !is_alive(main));
}

#[test]
fn nothing_outlives_the_agent() {
    let (mut agent, mut host) = Agent::configured();
    let (_, main) = host.start(&shell(&format!("{}; sleep 1000", daemon(&agent))));
    let daemon = read_pid(&agent.path("daemon"));
    let pid = rustix::process::Pid::from_child(&agent.child);
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    agent.child.wait().unwrap();
    eventually("everything ends", || !is_alive(daemon) && !is_alive(main));
}
