//! Reaching the agent: PID 1, its memory, its descriptors, its limits, and the helpers it forks.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use super::argument;
use crate::raw::{self, Ended, Exit, call};
use crate::report::Report;

const AGENT: usize = 1;

/// Reads, writes, traces and rules the agent without sending it a signal.
pub(super) fn reach(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("agent");
    trace(&mut report);
    open_files(&mut report);
    rule(&mut report);

    let own = raw::spawn(|| raw::pause_forever());
    if let Ok(own) = own {
        report.twin("ptrace(seize, own child)", seize(own as usize));
        report.twin("process_vm_readv(own child)", read_memory(own as usize));
        report.twin("kill(own child)", raw::kill(own, libc::SIGKILL).and_then(|()| raw::wait(own)));
    }
    report.twin("prlimit(0)", limits(0));
    report.twin("read(/proc/self/environ)", fs::read("/proc/self/environ"));
    report.twin("readlink(/proc/self/exe)", fs::read_link("/proc/self/exe"));
    Ok(report)
}

/// Sends every signal that could end or stop the agent. Whether the call is refused or goes nowhere does not matter:
/// `alive` says whether PID 1 still answers the kernel, and the host looks for itself.
pub(super) fn signal(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("signal-agent");
    let signals = [
        ("KILL", libc::SIGKILL),
        ("TERM", libc::SIGTERM),
        ("STOP", libc::SIGSTOP),
        ("TSTP", libc::SIGTSTP),
        ("INT", libc::SIGINT),
        ("QUIT", libc::SIGQUIT),
        ("HUP", libc::SIGHUP),
        ("ABRT", libc::SIGABRT),
        ("SEGV", libc::SIGSEGV),
        ("USR1", libc::SIGUSR1),
        ("PIPE", libc::SIGPIPE),
        ("ALRM", libc::SIGALRM),
        ("XCPU", libc::SIGXCPU),
        ("SYS", libc::SIGSYS),
    ];
    for (name, number) in signals {
        report.attempt(format!("kill(1, {name})"), raw::kill(1, number));
        report.attempt(
            format!("pidfd_send_signal(1, {name})"),
            raw::in_child(|child| {
                let pidfd = child.call(libc::SYS_pidfd_open, [AGENT, 0, 0, 0, 0, 0])? as usize;
                child.call(libc::SYS_pidfd_send_signal, [pidfd, number as usize, 0, 0, 0, 0])
            }),
        );
    }
    let state = fs::read_to_string("/proc/1/stat");
    if let Ok(state) = &state {
        let letter = state.rsplit(')').next().and_then(|rest| rest.split_whitespace().next());
        report.fact("state", letter.unwrap_or("?"));
    }
    let own = raw::spawn(|| raw::pause_forever()).and_then(|own| {
        raw::kill(own, libc::SIGTERM)?;
        match raw::wait(own)? {
            Exit::Signal(libc::SIGTERM) => Ok(()),
            other => Err(io::Error::other(format!("{other:?}"))),
        }
    });
    report.twin("kill(own child, TERM)", own);
    Ok(report)
}

/// Looks for helpers of the agent (files are read and written by short-lived ones) and traces each one found.
pub(super) fn hunt(arguments: &[OsString]) -> Result<Report, String> {
    let time = Duration::from_millis(argument(arguments, 0, "milliseconds")?);
    let mut report = Report::new("hunt");
    let own = std::process::id();
    let (mut rounds, mut seen) = (0_u64, std::collections::BTreeSet::new());
    let end = Instant::now() + time;
    while Instant::now() < end {
        rounds += 1;
        for process in processes().filter(|process| *process != own && *process != 1) {
            if !is_helper(process) {
                continue;
            }
            seen.insert(process);
            let memory = OpenOptions::new().write(true).open(format!("/proc/{process}/mem"));
            let traced = seize(process as usize);
            // One that became the workload's own program in between is fair game.
            if is_helper(process) {
                if memory.is_ok() {
                    report.attempt(format!("open(/proc/{process}/mem)"), memory);
                }
                if matches!(traced, Ended::Returned(_)) {
                    report.attempt(format!("ptrace(seize, helper {process})"), traced);
                }
            }
        }
    }
    report.fact("rounds", rounds);
    report.fact("helpers_seen", seen.len());
    report.attempt("ptrace(seize, 1)", seize(AGENT));
    report.twin("list(/proc)", fs::read_dir("/proc"));
    Ok(report)
}

fn trace(report: &mut Report) {
    let attach = [libc::PTRACE_ATTACH as usize, AGENT, 0, 0, 0, 0];
    report.attempt("ptrace(attach, 1)", call(libc::SYS_ptrace, attach));
    report.attempt("ptrace(seize, 1)", seize(AGENT));
    report.attempt("process_vm_readv(1)", read_memory(AGENT));
    report.attempt("process_vm_writev(1)", write_memory(AGENT));
    for descriptor in 0..8 {
        report.attempt(
            format!("pidfd_getfd(1, {descriptor})"),
            raw::in_child(|child| {
                let pidfd = child.call(libc::SYS_pidfd_open, [AGENT, 0, 0, 0, 0, 0])? as usize;
                child.call(libc::SYS_pidfd_getfd, [pidfd, descriptor, 0, 0, 0, 0])
            }),
        );
    }
    let own = std::process::id() as usize;
    report.attempt("kcmp(1, self)", call(libc::SYS_kcmp, [AGENT, own, 0, 0, 0, 0]));
}

fn open_files(report: &mut Report) {
    for name in ["mem", "environ", "maps", "auxv", "stack", "syscall", "io", "personality"] {
        report.attempt(format!("open(/proc/1/{name})"), read_some(&format!("/proc/1/{name}")));
    }
    for name in ["exe", "root", "cwd"] {
        report
            .attempt(format!("readlink(/proc/1/{name})"), fs::read_link(format!("/proc/1/{name}")));
    }
    report.attempt("open(/proc/1/root/)", fs::read_dir("/proc/1/root/"));
    report.attempt("open(/proc/1/exe)", File::open("/proc/1/exe"));
    // A writable handle on the agent's program would change every later sandbox (CVE-2019-5736).
    report.attempt("open(/proc/1/exe, write)", OpenOptions::new().write(true).open("/proc/1/exe"));
    // Root of the user namespace may see the numbers; what they stand for must stay hidden.
    report.attempt("readlink(/proc/1/fd/*)", any_link("/proc/1/fd"));
    report.attempt("readlink(/proc/1/map_files/*)", any_link("/proc/1/map_files"));
    report.attempt("open(/proc/1/mem, write)", OpenOptions::new().write(true).open("/proc/1/mem"));
    // A raised score would make the kernel choose the agent when memory is short. Root inside owns this file and may
    // offer its own sandbox to the memory killer first; nobody else may.
    let root = fs::metadata("/proc/self").is_ok_and(|own| own.uid() == 0);
    if !root {
        let score = fs::read("/proc/1/oom_score_adj")
            .and_then(|now| fs::write("/proc/1/oom_score_adj", now));
        report.attempt("write(/proc/1/oom_score_adj)", score);
    }
    // Everybody may open this one; the kernel decides when it is written.
    report.attempt("write(/proc/1/timerslack_ns)", fs::write("/proc/1/timerslack_ns", "50000"));
}

/// Limits and scheduling: a limit of zero CPU seconds or descriptors would end the agent as surely as a signal.
/// Values are the ones that are in force, so success changes nothing.
fn rule(report: &mut Report) {
    report.attempt("prlimit(1, descriptors)", limits(AGENT));
    let one_cpu = [AGENT, 8, raw::place(&mut 1_u64), 0, 0, 0];
    report.attempt("sched_setaffinity(1)", call(libc::SYS_sched_setaffinity, one_cpu));
    let parameter = [AGENT, raw::place(&mut 0_i32), 0, 0, 0, 0];
    report.attempt("sched_setparam(1)", call(libc::SYS_sched_setparam, parameter));
    let priority = [libc::PRIO_PROCESS as usize, AGENT, 0, 0, 0, 0];
    report.attempt("setpriority(1)", call(libc::SYS_setpriority, priority));
    let (who_process, best_effort) = (1, 2 << 13 | 4);
    let io_priority = [who_process, AGENT, best_effort, 0, 0, 0];
    report.attempt("ioprio_set(1)", call(libc::SYS_ioprio_set, io_priority));
    let advice = raw::in_child(|child| {
        let pidfd = child.call(libc::SYS_pidfd_open, [AGENT, 0, 0, 0, 0, 0])? as usize;
        let mut range = [0_usize, 4096];
        let cold = 20;
        child.call(libc::SYS_process_madvise, [pidfd, raw::place(&mut range), 1, cold, 0, 0])
    });
    report.attempt("process_madvise(1)", advice);
    report.attempt("migrate_pages(1)", call(libc::SYS_migrate_pages, [AGENT, 0, 0, 0, 0, 0]));
    report.attempt("move_pages(1)", call(libc::SYS_move_pages, [AGENT, 0, 0, 0, 0, 0]));
}

fn seize(process: usize) -> Ended {
    const PTRACE_SEIZE: usize = 0x4206;
    call(libc::SYS_ptrace, [PTRACE_SEIZE, process, 0, 0, 0, 0])
}

/// Reads eight bytes at an address that every child of this process has mapped.
fn read_memory(process: usize) -> Ended {
    transfer(libc::SYS_process_vm_readv, process)
}

/// Writes eight bytes there. In another program that address is mapped by chance only; a refusal comes before.
fn write_memory(process: usize) -> Ended {
    transfer(libc::SYS_process_vm_writev, process)
}

fn transfer(number: libc::c_long, process: usize) -> Ended {
    raw::in_child(|child| {
        let mut source = 0x0123_4567_89ab_cdef_u64;
        let mut target = 0_u64;
        let mut remote = [raw::place(&mut source), 8];
        let mut local = [raw::place(&mut target), 8];
        let [local, remote] = [raw::place(&mut local), raw::place(&mut remote)];
        child.call(number, [process, local, 1, remote, 1, 0])
    })
}

/// Sets the limit on descriptors to what it is.
fn limits(process: usize) -> Ended {
    raw::in_child(|child| {
        let mut limit = [0_u64; 2];
        let (descriptors, place) = (libc::RLIMIT_NOFILE as usize, raw::place(&mut limit));
        child.call(libc::SYS_prlimit64, [process, descriptors, 0, place, 0, 0])?;
        child.call(libc::SYS_prlimit64, [process, descriptors, place, 0, 0, 0])
    })
}

fn read_some(path: &str) -> io::Result<()> {
    use std::io::Read;
    let mut file = File::open(path)?;
    // Memory at address zero is not mapped; being able to open it is the finding.
    if path.ends_with("/mem") { Ok(()) } else { file.read(&mut [0; 64]).map(drop) }
}

/// Succeeds if what any entry of a directory of links stands for can be read.
fn any_link(directory: &str) -> io::Result<()> {
    let mut refusal = io::Error::from_raw_os_error(libc::ENOENT);
    for entry in fs::read_dir(directory)? {
        match fs::read_link(entry?.path()) {
            Ok(_) => return Ok(()),
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Whether a process still is the agent's program: forked from it and not yet anything else.
fn is_helper(process: u32) -> bool {
    let name = fs::read_to_string(format!("/proc/{process}/comm")).unwrap_or_default();
    let agent = fs::read_to_string("/proc/1/comm").unwrap_or_default();
    name == agent || name.contains("belljar-a")
}
