//! An agent that starts one process at a time without a supervisor: as PID 1, where copies of processes are dear.

use std::process::Command;

use belljar_protocol::v1::{
    Cancel, Configure, Kill, Start, TreeKill, User, frame::Body, kill::Scope,
};

use crate::host::{AGENT, Agent, Host, Run, argv, configuration, eventually, shell, terminal};

const UID: u32 = 1234;

/// An agent as PID 1 of its own namespace, whose processes are another user's.
fn direct() -> Option<(Agent, Host)> {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: needs root");
        return None;
    }
    let agent = Agent::start_by(rustix::process::Signal::KILL, |listen| {
        let mut command = Command::new("unshare");
        command.args([
            "--pid",
            "--mount",
            "--fork",
            "--kill-child",
            "--mount-proc",
            AGENT,
            &listen,
        ]);
        command
    });
    let mut host = agent.connect();
    let configure = Configure {
        tree_kill: TreeKill::Direct.into(),
        single_user: false,
        user: Some(User { uid: UID, gid: UID, ..User::default() }),
        ..configuration()
    };
    assert!(matches!(host.ask(Body::Configure(configure)), Body::Configured(_)));
    Some((agent, host))
}

/// Leaves a daemon without session, parents and pipes behind and says its number.
const DAEMON: &str =
    "setsid sh -c 'trap : TERM HUP; echo $$; exec >&- 2>&-; while :; do sleep 0.05; done' &";

fn kill_tree(host: &mut Host, start: &Start) {
    let kill = Kill { process: start.process.clone(), signal: 9, scope: Scope::Tree.into() };
    assert!(matches!(host.ask(Body::Kill(kill)), Body::Done(_)));
}

/// Takes the rest of what a process says, and its end.
fn finish(host: &mut Host, stream: u64, said: &str) -> Run {
    host.finish_after(stream, Run { stdout: said.into(), ..Run::default() })
}

/// As seen from inside, since numbers are those of the namespace.
fn is_alive(host: &mut Host, pid: &str) -> bool {
    let line = format!("grep -q '^State:[[:space:]]*[^Z]' /proc/{pid}/status 2>/dev/null");
    host.run(&shell(&line)).code() == 0
}

fn parent(host: &mut Host) -> String {
    host.run(&shell("echo $PPID")).out().trim().to_owned()
}

#[test]
fn one_process_at_a_time_has_no_supervisor() {
    let Some((_agent, mut host)) = direct() else { return };
    assert_eq!(parent(&mut host), "1");
    let first = shell("echo $PPID; exec sleep 1000");
    let (stream, _) = host.start(&first);
    let said = host.read_until(stream, "\n");
    assert_eq!(said, "1\n");
    // Two more at once, each with a supervisor of its own.
    let others = [(); 2].map(|()| {
        let other = shell("echo $PPID; exec sleep 1000");
        let (stream, _) = host.start(&other);
        let parent = host.read_until(stream, "\n");
        assert_ne!(parent, "1\n");
        (other, stream, parent)
    });
    assert_ne!(others[0].2, others[1].2);
    kill_tree(&mut host, &first);
    assert_eq!(finish(&mut host, stream, &said).signal(), 9);
    // The others have not noticed, and when they are gone, its place is free.
    for (other, stream, said) in others {
        kill_tree(&mut host, &other);
        assert_eq!(finish(&mut host, stream, &said).signal(), 9);
    }
    eventually("its place is free", || parent(&mut host) == "1");
}

#[test]
fn cancelling_kills_its_daemons_and_nobody_elses() {
    let Some((_agent, mut host)) = direct() else { return };
    let first = shell(&format!("{DAEMON} trap : TERM; while :; do sleep 0.05; done"));
    let (stream, _) = host.start(&first);
    let daemon = host.read_until(stream, "\n");
    let other = shell(&format!("{DAEMON} sleep 1000"));
    let (other_stream, _) = host.start(&other);
    let other_daemon = host.read_until(other_stream, "\n");
    let cancel = Body::Cancel(Cancel { process: first.process.clone(), grace_ms: 50 });
    assert!(matches!(host.ask(cancel), Body::Done(_)));
    let run = finish(&mut host, stream, &daemon);
    assert!(run.exited.cancelled);
    assert_eq!(run.signal(), 9);
    eventually("the daemon ends", || !is_alive(&mut host, daemon.trim()));
    assert!(is_alive(&mut host, other_daemon.trim()));
    kill_tree(&mut host, &other);
    finish(&mut host, other_stream, &other_daemon);
    eventually("the other daemon ends", || !is_alive(&mut host, other_daemon.trim()));
}

#[test]
fn a_daemon_that_is_left_keeps_its_tree() {
    let Some((_agent, mut host)) = direct() else { return };
    let start = shell(DAEMON);
    let run = host.run(&start);
    assert_eq!(run.code(), 0);
    let daemon = run.out();
    // It is found by the process that started it, so whatever comes next must not be mixed up with it.
    assert_ne!(parent(&mut host), "1");
    assert!(is_alive(&mut host, daemon.trim()));
    kill_tree(&mut host, &start);
    eventually("the daemon ends", || !is_alive(&mut host, daemon.trim()));
    eventually("its tree is gone", || parent(&mut host) == "1");
}

#[test]
fn a_tree_that_moves_on_all_the_time_is_killed_whole() {
    let Some((_agent, mut host)) = direct() else { return };
    // Two lines of succession in which everybody starts one and goes.
    let line = r#"export S='exec >&- 2>&-; sh -c "$S" &'; sh -c "$S" & sh -c "$S" &"#;
    let start = shell(line);
    assert_eq!(host.run(&start).code(), 0);
    // However often somebody looks, it is never taken for gone.
    for _ in 0..60 {
        assert_ne!(parent(&mut host), "1");
    }
    kill_tree(&mut host, &start);
    eventually("the tree is gone", || parent(&mut host) == "1");
}

#[test]
fn says_why_a_program_did_not_start_and_goes_on() {
    let Some((_agent, mut host)) = direct() else { return };
    for (start, code) in [
        (argv(&["/nonexistent"]), "program-not-found"),
        (argv(&["/etc/passwd"]), "program-not-executable"),
        (
            Start { working_directory: b"/nonexistent".to_vec(), ..argv(&["true"]) },
            "working-directory-invalid",
        ),
    ] {
        assert_eq!(host.fail(&start).code, code);
        assert_eq!(host.run(&shell("exit 7")).code(), 7);
    }
    // Those before it may still be on their way out; then it has a supervisor.
    eventually("a command on a terminal has the agent as its parent", || {
        let run = host.run(&terminal("test -t 0 && tty && echo $PPID"));
        run.out().ends_with("\r\n1\r\n")
    });
    assert_eq!(host.run(&shell("id -u")).out(), format!("{UID}\n"));
}

#[test]
fn nothing_of_a_start_is_kept() {
    let Some((_agent, mut host)) = direct() else { return };
    let used = |host: &mut Host| -> u64 {
        for _ in 0..60 {
            assert_eq!(host.run(&argv(&["true"])).code(), 0);
            assert_eq!(host.fail(&argv(&["/nonexistent"])).code, "program-not-found");
        }
        let text = host.run(&shell("grep VmData: /proc/1/status")).out().to_owned();
        text.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    let before = used(&mut host);
    let after = used(&mut host);
    // What each start has lent to its child, 64 KiB and more, would be 7 MiB by then.
    assert!(after < before + 4096, "{before} KiB, then {after} KiB");
}
