//! Too many processes, and processes that nobody waits for.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use super::argument;
use crate::errno;
use crate::raw;
use crate::report::Report;

/// How long `orphans` tries again when the limit is reached: PID 1 needs a moment to reap.
const PATIENCE: Duration = Duration::from_secs(10);

/// Forks until refused or until COUNT. With `hold`, every process then stays and forks on whenever it can, so that
/// the host can measure how fast such a sandbox is destroyed.
pub(super) fn fork_bomb(arguments: &[OsString]) -> Result<Report, String> {
    let most: usize = argument(arguments, 0, "a count")?;
    let hold = arguments.get(1).is_some_and(|word| word == "hold");
    let mut report = Report::new("fork-bomb");
    let mut children = Vec::new();
    let refusal = loop {
        if children.len() == most {
            break None;
        }
        match raw::spawn(|| if hold { fork_for_ever() } else { raw::pause_forever() }) {
            Ok(child) => children.push(child),
            Err(error) => break Some(error),
        }
    };
    report.fact("made", children.len());
    report.fact("most", most);
    record_refusal(&mut report, refusal);
    if hold {
        announce(&report);
        raw::pause_forever();
    }
    for child in &children {
        let _ = raw::kill(*child, libc::SIGKILL);
    }
    for child in children {
        let _ = raw::wait(child);
    }
    report.twin("fork after all ended", raw::spawn(|| 0).and_then(raw::wait));
    Ok(report)
}

/// Starts threads that wait, until refused or until COUNT.
pub(super) fn thread_bomb(arguments: &[OsString]) -> Result<Report, String> {
    let most: usize = argument(arguments, 0, "a count")?;
    let mut report = Report::new("thread-bomb");
    let door = Arc::new(std::sync::RwLock::new(()));
    let closed = door.write().map_err(|error| error.to_string())?;
    let mut threads = Vec::new();
    let refusal = loop {
        if threads.len() == most {
            break None;
        }
        let door = Arc::clone(&door);
        let wait = move || drop(door.read());
        match thread::Builder::new().stack_size(16 * 1024).spawn(wait) {
            Ok(thread) => threads.push(thread),
            Err(error) => break Some(error),
        }
    };
    report.fact("made", threads.len());
    report.fact("most", most);
    record_refusal(&mut report, refusal);
    drop(closed);
    for thread in threads {
        let _ = thread.join();
    }
    let both = Arc::new(Barrier::new(2));
    let other = Arc::clone(&both);
    let one = thread::Builder::new().spawn(move || other.wait().is_leader());
    report.twin(
        "thread after all ended",
        one.map(|thread| {
            both.wait();
            thread.join()
        }),
    );
    Ok(report)
}

/// Leaves COUNT daemons: forked twice, in sessions of their own, with standard streams closed.
pub(super) fn daemons(arguments: &[OsString]) -> Result<Report, String> {
    let count: usize = argument(arguments, 0, "a count")?;
    let mut report = Report::new("daemons");
    let mut made = 0;
    for _ in 0..count {
        let middle = raw::spawn(|| {
            let _ = raw::become_session_leader();
            let daemon = raw::spawn(|| {
                close_standard_streams();
                for signal in [libc::SIGTERM, libc::SIGHUP, libc::SIGINT] {
                    raw::ignore_signal(signal);
                }
                raw::pause_forever()
            });
            i32::from(daemon.is_err())
        });
        match middle.and_then(raw::wait) {
            Ok(raw::Exit::Code(0)) => made += 1,
            _ => break,
        }
    }
    report.fact("made", made);
    report.fact("processes", count_processes());
    Ok(report)
}

/// Leaves COUNT dead grandchildren to PID 1, one after the other.
pub(super) fn orphans(arguments: &[OsString]) -> Result<Report, String> {
    let count: usize = argument(arguments, 0, "a count")?;
    let mut report = Report::new("orphans");
    let end = Instant::now() + PATIENCE;
    let (mut made, mut refused) = (0_usize, 0_usize);
    while made < count {
        match raw::spawn(|| i32::from(raw::spawn(|| 0).is_err())).and_then(raw::wait) {
            Ok(raw::Exit::Code(0)) => made += 1,
            _ if Instant::now() < end => {
                refused += 1;
                thread::yield_now();
            }
            _ => break,
        }
    }
    report.fact("made", made);
    report.fact("refused", refused);
    Ok(report)
}

/// Ignores every signal that can be ignored, says so, and stays.
pub(super) fn stubborn(_: &[OsString]) -> Result<Report, String> {
    for signal in 1..32 {
        if signal != libc::SIGKILL && signal != libc::SIGSTOP {
            raw::ignore_signal(signal);
        }
    }
    let mut report = Report::new("stubborn");
    report.fact("process", std::process::id());
    announce(&report);
    raw::pause_forever()
}

/// Counts what runs in this PID namespace, and what is dead and not reaped.
pub(super) fn census(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("census");
    let states = states();
    report.fact("processes", states.len());
    report.fact("zombies", states.iter().filter(|state| **state == 'Z').count());
    Ok(report)
}

fn fork_for_ever() -> i32 {
    loop {
        if raw::spawn(|| raw::pause_forever()).is_err() {
            thread::yield_now();
        }
    }
}

/// Prints the report now, because this process will not end by itself.
fn announce(report: &Report) {
    let mut out = io::stdout().lock();
    let _ = writeln!(out, "{report}");
    let _ = out.flush();
}

fn record_refusal(report: &mut Report, refusal: Option<io::Error>) {
    if let Some(error) = refusal {
        report.fact("refused_by", error.raw_os_error().map_or("?", errno::name));
    }
}

fn close_standard_streams() {
    for descriptor in 0..3 {
        raw::close(descriptor);
    }
}

fn count_processes() -> usize {
    states().len()
}

fn states() -> Vec<char> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    processes
        .filter_map(|process| fs::read_to_string(format!("/proc/{process}/stat")).ok())
        .filter_map(|stat| stat.rsplit_once(") ")?.1.chars().next())
        .collect()
}
