//! Resource abuse: a sandbox that takes all it can get, and what its neighbours and the host notice.
//!
//! A limit that was asked for is enforced or refused. Where this host refuses one (rootless without control groups),
//! the test says so in what it expects, and goes on with the best that is offered.

#![forbid(unsafe_code)]

mod common;

use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

use belljar_isolation::{Report, raw};
use belljar_testkit::{Installation, Mode, Sandbox, matrix, skip, wait_until};
use common::{PROBE, expect_sealed, number, probe, report, run, text};
use serde_json::Value;

const MIB: u64 = 1 << 20;

/// From the command to the prompt: a sandbox full of hostile processes is gone by then.
const KILLABLE_WITHIN: Duration = Duration::from_secs(2);

/// What a neighbour of such a sandbox waits at most for a small command.
const NEIGHBOUR_WITHIN: Duration = Duration::from_secs(1);

/// Something that would otherwise wait without end did not.
const ENDS: Duration = Duration::from_secs(25);

/// Bounds are those of a calm machine; on a slow one they grow with what the same takes there without an attack.
fn bound(calm: Duration, plain: Duration) -> Duration {
    calm.max(plain * 10)
}

/// What the host's side of one command may use, whatever the command prints.
const MOST_HOST_MEMORY_KIB: u64 = 96 * 1024;

matrix! {
    alone a_fork_bomb_is_capped_and_killable,
    walls a_thread_bomb_is_capped,
    walls asked_process_limits_hold,
    walls memory_ends_in_oom_for_this_sandbox_only,
    walls shared_memory_counts_as_memory,
    walls a_full_disk_is_full_for_this_sandbox_only,
    walls claimed_space_counts,
    walls inodes_are_limited,
    unread_output_costs_bounded_memory,
    long_output_is_cut_with_a_mark,
    everywhere dead_children_are_reaped,
    daemons_end_with_their_sandbox,
    walls a_timeout_kills_daemons_too,
    walls a_stubborn_process_is_killed,
    walls a_stopped_supervisor_does_not_stop_the_timeout,
    walls stopping_whatever_starts_holds_up_nobody_else,
    alone a_spinning_sandbox_leaves_the_rest,
    huge_arguments_are_carried_or_refused,
    odd_bytes_in_arguments_arrive,
}

fn a_fork_bomb_is_capped_and_killable(belljar: &Installation) {
    let (sandbox, neighbour) = (belljar.create(&[]), belljar.create(&[]));
    let neighbour_within = bound(NEIGHBOUR_WITHIN, neighbour.exec(["true"]).expect_success().time);
    let killable_within =
        bound(KILLABLE_WITHIN, belljar.create(&[]).destroy().expect_success().time);
    let report = probe(&sandbox, "fork-bomb", &["4000"]);
    assert_eq!(text(&report, "refused_by"), "EAGAIN", "{report}");
    assert!(report.twin.iter().all(|twin| twin.outcome.as_str() == "allowed"), "{report}");

    let mut bomb = sandbox.start_with(&["--timeout", "50"], [PROBE, "fork-bomb", "4000", "hold"]);
    bomb.line();
    for _ in 0..10 {
        let answer = neighbour.exec(["true"]).expect_success();
        assert!(answer.time < neighbour_within, "the neighbour waited {:?}", answer.time);
    }
    let destroyed = sandbox.destroy().expect_success();
    assert!(destroyed.time < killable_within, "destroying took {:?}", destroyed.time);
    assert_ne!(bomb.finish().code(), 0, "the command was killed with its sandbox");
    // The probe itself counts too.
    assert!(number(&report, "made") < 256, "{report}");
}

fn a_thread_bomb_is_capped(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let report = probe(&sandbox, "thread-bomb", &["1000000"]);
    assert!(number(&report, "made") < 256, "{report}");
    assert_eq!(text(&report, "refused_by"), "EAGAIN", "{report}");
    assert!(report.twin.iter().all(|twin| twin.outcome.as_str() == "allowed"), "{report}");
}

fn asked_process_limits_hold(belljar: &Installation) {
    let sandbox = with_limit(belljar, &["--pids", "40"]);
    let finished = run(&sandbox, &["--json"], "fork-bomb", &["4000"]);
    let answer = finished.json();
    let report = report_in(&answer);
    assert!(number(&report, "made") < 40, "{report}");
    assert!(number(&report, "made") > 20, "the agent and its helpers took most of it: {report}");
    if belljar.mode() == Mode::Root {
        // The kernel counts refusals in a control group only; RLIMIT_NPROC leaves no trace.
        expect_limit(&answer, "pids-exhausted");
    }

    // Where nobody counts, the agent sees that there are as many as may be when a command fails.
    let flood = "for i in $(seq 100); do sleep 60 & done 2>/dev/null";
    let answer = sandbox.exec_with(&["--json"], ["sh", "-c", flood]).json();
    assert_ne!(answer["exit_code"], 0, "{answer}");
    expect_limit(&answer, "pids-exhausted");

    // Some processes are no flood, however the command ends.
    let sandbox = with_limit(belljar, &["--pids", "40"]);
    let some = "for i in $(seq 20); do sleep 60 & done; exit 3";
    let answer = sandbox.exec_with(&["--json"], ["sh", "-c", some]).json();
    assert_eq!(
        (&answer["exit_code"], &answer["limits_hit"]),
        (&3.into(), &Value::Array(vec![])),
        "{answer}"
    );
}

fn memory_ends_in_oom_for_this_sandbox_only(belljar: &Installation) {
    let neighbour = belljar.create(&[]);
    let mut held = neighbour.start_with(&[], [PROBE, "stubborn"]);
    held.line();

    let sandbox = with_limit(belljar, &["--memory", "128m"]);
    let answer = run(&sandbox, &["--json"], "memory", &["4294967296"]).json();
    assert_eq!(answer["reason"], "oom", "{answer}");
    assert_eq!(answer["exit_code"], 137, "{answer}");
    expect_limit(&answer, "oom");
    if belljar.mode() == Mode::Root {
        let reached = answer["stderr"].as_str().unwrap_or_default();
        let reached = reached
            .lines()
            .rev()
            .find_map(|line| serde_json::from_str::<Value>(line).ok()?["used"].as_u64());
        assert!(reached.unwrap_or_default() <= 128 * MIB, "{reached:?} bytes were used");
    }

    // The sandbox goes on, the neighbour never noticed, and an ordinary failure is not called oom.
    let answer = run(&sandbox, &["--json"], "memory", &["16777216"]).json();
    assert_eq!(
        (&answer["reason"], &answer["exit_code"]),
        (&"exited".into(), &0.into()),
        "{answer}"
    );
    let answer = sandbox.exec_with(&["--json"], ["sh", "-c", "kill -9 $$"]).json();
    assert_ne!(answer["reason"], "oom", "{answer}");
    neighbour.exec(["true"]).expect_success();
    assert!(Path::new(&format!("/proc/{}", held.id())).exists(), "the neighbour's command ended");
    held.kill();
}

fn shared_memory_counts_as_memory(belljar: &Installation) {
    let sandbox = with_limit(belljar, &["--memory", "128m"]);
    let finished = run(&sandbox, &["--json"], "fill", &["/dev/shm", "1073741824"]);
    let answer = finished.json();
    // Refused at the file system's own bound, or killed at the sandbox's.
    if answer["exit_code"] == 0 {
        let report = report_in(&answer);
        assert_eq!(text(&report, "outcome"), "ENOSPC", "{report}");
        assert!(number(&report, "written") <= 128 * MIB, "{report}");
    } else {
        assert_eq!(answer["reason"], "oom", "{answer}");
    }
    sandbox.exec(["true"]).expect_success();
}

fn a_full_disk_is_full_for_this_sandbox_only(belljar: &Installation) {
    let neighbour = belljar.create(&[]);
    let sandbox = with_limit(belljar, &["--disk", "64m"]);
    let before = free_bytes(&belljar.state());
    // In a container each place has its part of the limit.
    let least = if belljar.mode().is_engine() { 4 } else { 16 };
    for place in ["/workspace", "/tmp", "/output", "/home/user"] {
        let answer = run(&sandbox, &["--json"], "fill", &[place, "4294967296"]).json();
        let report = report_in(&answer);
        let outcome = text(&report, "outcome");
        assert!(["ENOSPC", "EDQUOT"].contains(&outcome), "{place}: {report}");
        assert!(number(&report, "written") <= 64 * MIB, "{place}: {report}");
        assert!(number(&report, "written") > least * MIB, "{place}: {report}");
        assert!(report.twin.iter().all(|twin| twin.outcome.as_str() == "allowed"), "{report}");
    }
    let line = "head -c 200m /dev/zero > /workspace/full";
    let answer = sandbox.exec_with(&["--json"], ["sh", "-c", line]).json();
    expect_limit(&answer, "disk-full");
    sandbox.exec(["rm", "/workspace/full"]).expect_success();
    // One quota for all places together.
    let line = "head -c 48m /dev/zero > /workspace/a && head -c 48m /dev/zero > /tmp/b";
    let both = sandbox.exec(["sh", "-c", line]);
    assert_ne!(both.code(), 0, "96 MiB were written with a limit of 64: {both}");
    let taken = before.saturating_sub(free_bytes(&belljar.state()));
    assert!(taken < 160 * MIB, "the host lost {} MiB", taken / MIB);
    neighbour.exec(["sh", "-c", "head -c 1m /dev/zero > /workspace/a"]).expect_success();
}

fn claimed_space_counts(belljar: &Installation) {
    let sandbox = with_limit(belljar, &["--disk", "64m"]);
    let before = free_bytes(&belljar.state());
    let report = probe(&sandbox, "sparse", &["/workspace", "1099511627776"]);
    assert_ne!(text(&report, "allocate"), "allowed", "{report}");
    assert!(number(&report, "allocate_bytes") <= 64 * MIB, "{report}");
    // A sparse file may exist where the file system allows its size; it must hold nothing. gVisor's kernel makes the number
    // of blocks up from the size; what the host lost tells more.
    if belljar.mode() != Mode::Runsc {
        assert!(number(&report, "truncate_blocks") < 64, "{report}");
    }
    assert!(report.twin.iter().all(|twin| twin.outcome.as_str() == "allowed"), "{report}");
    let taken = before.saturating_sub(free_bytes(&belljar.state()));
    assert!(taken < 160 * MIB, "the host lost {} MiB", taken / MIB);
}

fn inodes_are_limited(belljar: &Installation) {
    let sandbox = with_limit(belljar, &["--disk", "64m"]);
    let report = report(&run(&sandbox, &["--timeout", "60"], "inodes", &["/workspace", "2000000"]));
    assert!(["ENOSPC", "EDQUOT"].contains(&text(&report, "outcome")), "{report}");
    assert!(number(&report, "made") > 100, "{report}");
    assert!(report.twin.iter().all(|twin| twin.outcome.as_str() == "allowed"), "{report}");
}

fn unread_output_costs_bounded_memory(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    // Nobody reads this command's output.
    let flood = sandbox.start_with(&["--timeout", "30"], [PROBE, "flood", "1073741824"]);
    let server = belljar.server_process();
    let watched = [("command", flood.id()), ("agent", sandbox.agent().0), ("server", server)];
    let grown = wait_until(Duration::from_secs(3), || {
        watched.iter().find(|(_, process)| peak_memory_kib(*process) > MOST_HOST_MEMORY_KIB)
    });
    if let Some((who, process)) = grown {
        panic!("the {who} uses {} KiB", peak_memory_kib(*process));
    }
    // The stalled command stalls nothing else.
    let answer = sandbox.exec(["echo", "here"]).expect_success();
    assert_eq!(answer.text(), "here\n");
    assert!(answer.time < ENDS, "it took {:?}", answer.time);
    drop(flood);
}

fn long_output_is_cut_with_a_mark(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let bytes = (64 * MIB).to_string();
    let answer = run(&sandbox, &["--json"], "flood", &[&bytes]).json();
    let stdout = answer["stdout"].as_str().unwrap_or_default();
    assert!(stdout.len() as u64 <= MIB + 4096, "{} bytes were kept", stdout.len());
    assert!(
        stdout.contains("truncated"),
        "no mark at the end: {:?}",
        stdout.get(stdout.len() - 200..)
    );
    assert_eq!(answer["exit_code"], 0, "the command ran to its end");
    expect_limit(&answer, "output-truncated");

    // Without --json everything passes through, to the last byte.
    let passed = run(&sandbox, &[], "flood", &["8388608"]).expect_success();
    let line = passed.stdout.iter().rposition(|byte| *byte == b'y').map_or(0, |last| last + 2);
    assert_eq!(line, 8_388_608, "bytes that arrived");
    let short = run(&sandbox, &["--json"], "flood", &["1000"]).json();
    assert!(!short["stdout"].as_str().unwrap_or_default().contains("truncated"), "{short}");
}

fn dead_children_are_reaped(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let before = number(&probe(&sandbox, "census", &[]), "processes");
    let report = probe(&sandbox, "orphans", &["10000"]);
    assert_eq!(number(&report, "made"), 10_000, "{report}");
    let settled = wait_until(belljar_testkit::PROMPT, || {
        let census = probe(&sandbox, "census", &[]);
        (number(&census, "zombies") == 0 && number(&census, "processes") <= before).then_some(())
    });
    assert!(settled.is_some(), "{} and not back to {before}", probe(&sandbox, "census", &[]));
}

fn daemons_end_with_their_sandbox(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let report = probe(&sandbox, "daemons", &["50"]);
    assert_eq!(number(&report, "made"), 50, "{report}");
    let destroyed = sandbox.destroy().expect_success();
    assert!(destroyed.time < ENDS, "destroying took {:?}", destroyed.time);
    belljar.assert_nothing_left();
}

fn a_timeout_kills_daemons_too(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let before = number(&probe(&sandbox, "census", &[]), "processes");
    let line = format!("{PROBE} daemons 30; exec {PROBE} stubborn");
    let answer = sandbox.exec_with(&["--timeout", "1", "--json"], ["sh", "-c", &line]);
    assert_eq!(answer.code(), 124, "{answer}");
    assert!(answer.time < ENDS, "it took {:?}", answer.time);
    let answer = answer.json();
    assert_eq!(answer["reason"], "timed_out", "{answer}");
    let settled = wait_until(belljar_testkit::PROMPT, || {
        let census = probe(&sandbox, "census", &[]);
        (number(&census, "processes") <= before).then_some(())
    });
    assert!(settled.is_some(), "{} and not back to {before}", probe(&sandbox, "census", &[]));
}

fn a_stubborn_process_is_killed(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let start = Instant::now();
    let answer = run(&sandbox, &["--timeout", "1"], "stubborn", &[]).expect_code(124);
    assert!(start.elapsed() < ENDS, "it took {:?}", answer.time);

    let mut held = sandbox.start_with(&["--timeout", "50"], [PROBE, "stubborn"]);
    held.line();
    let destroyed = sandbox.destroy().expect_success();
    assert!(destroyed.time < ENDS, "destroying took {:?}", destroyed.time);
    assert_ne!(held.finish().code(), 0);
}

/// Where a supervisor stands between the agent and the command, it may have the workload's own user.
fn a_stopped_supervisor_does_not_stop_the_timeout(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let before = number(&probe(&sandbox, "census", &[]), "processes");
    let agent = sandbox.agent();
    for signal in ["STOP", "TSTP", "KILL"] {
        let line = format!("{PROBE} daemons 5; kill -{signal} $PPID; exec {PROBE} stubborn");
        let answer = sandbox.exec_with(&["--timeout", "1"], ["sh", "-c", &line]);
        assert!([124, 137].contains(&answer.code()), "{signal}: {answer}");
        assert!(answer.time < ENDS, "{signal}: it took {:?}", answer.time);
        assert!(sandbox.agent_is(agent), "{signal}: the agent ended");
    }
    let settled = wait_until(belljar_testkit::PROMPT, || {
        let census = probe(&sandbox, "census", &[]);
        (number(&census, "processes") <= before).then_some(())
    });
    assert!(settled.is_some(), "{} and not back to {before}", probe(&sandbox, "census", &[]));
}

/// A command has the workload's user a little before it is the program that was asked for.
fn stopping_whatever_starts_holds_up_nobody_else(belljar: &Installation) {
    // As plain as most are: how a command starts depends on what a sandbox has.
    let created = belljar.try_create_plain(&[]);
    let sandbox = created.unwrap_or_else(|refusal| panic!("{}", refusal.finished));
    sandbox.exec(["true"]).expect_success();
    // Not before it is known to run: it would stop who is to tell.
    let line = "echo on; until [ -e /tmp/go ]; do :; done; while :; do kill -STOP -1; done";
    let mut stopper = sandbox.start_with(&["--timeout", "50"], ["sh", "-c", line]);
    stopper.line();
    let _ = sandbox.exec_with(&["--timeout", "1"], ["touch", "/tmp/go"]); // which may be the first to be stopped
    // The kernel takes a while to copy what it is given, and longer to be the program.
    let argument = "x".repeat(100_000);
    let command: Vec<_> = ["true"].into_iter().chain([argument.as_str(); 2]).collect();
    let mut stopped = 0;
    for _ in 0..50 {
        let answer = sandbox.exec_with(&["--timeout", "1"], &command);
        // It was stopped until its time was over, or it was faster.
        assert!([0, 124].contains(&answer.code()), "{answer}");
        assert!(answer.time < ENDS, "it took {:?}", answer.time);
        stopped += u32::from(answer.code() == 124);
        if stopped == 5 {
            break;
        }
    }
    assert_eq!(stopped, 5, "nearly nothing was ever stopped");
    let destroyed = sandbox.destroy().expect_success();
    assert!(destroyed.time < ENDS, "destroying took {:?}", destroyed.time);
    assert_ne!(stopper.finish().code(), 0);
}

fn a_spinning_sandbox_leaves_the_rest(belljar: &Installation) {
    let half = match belljar.try_create(&["--cpus", "0.5"]) {
        Ok(half) => half,
        Err(refusal) => {
            assert_eq!(belljar.mode(), Mode::Rootless, "{}", refusal.finished);
            return refusal.expect_code("not-enforceable");
        }
    };
    let report = probe(&half, "spin", &["2000", "4"]);
    let share = number(&report, "cpu_us") as f64 / number(&report, "wall_us") as f64;
    assert!((0.1..0.6).contains(&share), "half a processor was {share:.2}: {report}");

    // One processor each: four busy threads next door do not take from one thread here.
    let (greedy, neighbour) = (belljar.create(&["--cpus", "1"]), belljar.create(&["--cpus", "1"]));
    let share_of =
        |report: &Report| number(report, "cpu_us") as f64 / number(report, "wall_us") as f64;
    let neighbours_share = || share_of(&probe(&neighbour, "spin", &["500", "1"]));
    let is_quiet = || (neighbours_share() > 0.97).then_some(());
    let mut best: f64 = 0.0;
    // Something else may wake up meanwhile, and stay: the best of four counts, in one of some rounds. Without limits, five
    // threads on two processors would have 0.4 each, in every round.
    for _ in 0..5 {
        if wait_until(Duration::from_secs(20), is_quiet).is_none() {
            return skip(
                "a_spinning_sandbox_leaves_the_rest",
                "the machine is busy with something else",
            );
        }
        let spin = greedy.start_with(&[], [PROBE, "spin", "4000", "4"]);
        best = (0..4).map(|_| neighbours_share()).fold(best, f64::max);
        let greedy = report_of(&spin.finish().expect_success().text());
        assert!(share_of(&greedy) < 1.15, "one processor was {:.2}: {greedy}", share_of(&greedy));
        if best >= 0.75 {
            return;
        }
    }
    panic!("the neighbour got {best:.2} of its processor");
}

fn huge_arguments_are_carried_or_refused(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    // As much as the host's kernel lets a command line be: sixteen arguments of 100 kB.
    let argument = "x".repeat(100_000);
    let mut argv = vec![PROBE, "arguments"];
    argv.extend(std::iter::repeat_n(argument.as_str(), 16));
    let finished = sandbox.exec(&argv);
    if finished.code() == 0 {
        assert_eq!(number(&report(&finished), "bytes"), 1_600_000);
    } else {
        assert_eq!(finished.code(), 125, "{finished}");
        assert!(finished.stderr.len() < 10_000, "the arguments are in the message");
    }
    // The largest single value that the kernel takes, as an environment variable.
    let variable = format!("LONG={}", "y".repeat(120_000));
    let finished = sandbox.exec_with(&["--env", &variable], [PROBE, "arguments"]);
    if finished.code() == 0 {
        assert!(number(&report(&finished), "environment_bytes") > 120_000);
    } else {
        assert_eq!(finished.code(), 125, "{finished}");
        assert!(finished.stderr.len() < 10_000, "the value is in the message");
    }
    sandbox.exec(["true"]).expect_success();
}

fn odd_bytes_in_arguments_arrive(belljar: &Installation) {
    use std::ffi::OsStr;
    let sandbox = belljar.create(&[]);
    let odd: [&[u8]; 4] = [b"\xff\xfe", b"", b"line\nline", b"-- --json"];
    let mut argv = vec![OsStr::new(PROBE), OsStr::new("arguments")];
    argv.extend(odd.iter().map(|bytes| OsStr::from_bytes(bytes)));
    let report = report(&sandbox.exec(&argv));
    let expected = odd.map(|bytes| bytes.iter().map(|b| format!("{b:02x}")).collect::<String>());
    assert_eq!(common::words(&report, "first"), expected);
    expect_sealed(&probe(&sandbox, "descriptors", &[]), "afterwards");
}

/// A sandbox with a limit that was asked for. An ordinary user may be told that it cannot be enforced; then a default
/// is the best there is.
#[track_caller]
fn with_limit<'a>(belljar: &'a Installation, flags: &[&str]) -> Sandbox<'a> {
    match belljar.try_create(flags) {
        Ok(sandbox) => sandbox,
        Err(refusal) => {
            assert_eq!(belljar.mode(), Mode::Rootless, "root can: {}", refusal.finished);
            refusal.expect_code("not-enforceable");
            belljar.create(&[flags, &["--best-effort"]].concat())
        }
    }
}

/// The report of a probe whose output is in a result of `--json`.
#[track_caller]
fn report_in(answer: &Value) -> Report {
    report_of(answer["stdout"].as_str().unwrap_or_else(|| panic!("no stdout in {answer}")))
}

#[track_caller]
fn report_of(text: &str) -> Report {
    Report::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// Fails the test unless a result names a limit that was reached.
#[track_caller]
fn expect_limit(answer: &Value, limit: &str) {
    let named = answer["limits_hit"]
        .as_array()
        .is_some_and(|limits| limits.iter().any(|name| name == limit));
    assert!(named, "`{limit}` is not among the limits reached: {answer}");
}

fn free_bytes(path: &Path) -> u64 {
    let path = CString::new(path.as_os_str().as_bytes()).expect("no NUL in a path of ours");
    raw::space(&path).expect("the directory exists").free_bytes
}

fn peak_memory_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|peak| peak.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}
