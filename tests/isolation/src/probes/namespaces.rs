//! Making namespaces and entering those of others.

use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsRawFd;

use crate::raw::{self, Ended, call, text};
use crate::report::Report;

const CLONE_NEWTIME: i32 = 0x80;

/// `struct clone_args`, first version.
#[repr(C)]
#[derive(Default)]
struct CloneArguments {
    flags: u64,
    pidfd: u64,
    child_tid: u64,
    parent_tid: u64,
    exit_signal: u64,
    stack: u64,
    stack_size: u64,
    tls: u64,
}

const KINDS: [(&str, i32); 8] = [
    ("user", libc::CLONE_NEWUSER),
    ("mount", libc::CLONE_NEWNS),
    ("network", libc::CLONE_NEWNET),
    ("pid", libc::CLONE_NEWPID),
    ("uts", libc::CLONE_NEWUTS),
    ("ipc", libc::CLONE_NEWIPC),
    ("cgroup", libc::CLONE_NEWCGROUP),
    ("time", CLONE_NEWTIME),
];

/// Every way to a new namespace: alone, below a new user namespace, by clone and by clone3.
pub(super) fn unshare(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("unshare");
    for (name, flag) in KINDS {
        report.attempt(format!("unshare({name})"), call(libc::SYS_unshare, flags(flag)));
        // The old call reads this bit as part of the exit signal.
        if flag != CLONE_NEWTIME {
            report.attempt(format!("clone({name})"), clone(flag));
        }
        report.attempt(format!("clone3({name})"), clone3(flag));
    }
    let both = libc::CLONE_NEWUSER | libc::CLONE_NEWNS;
    report.attempt(
        "unshare(user,mount) then mount(tmpfs)",
        raw::in_child(|child| {
            child.call(libc::SYS_unshare, flags(both))?;
            let tmpfs = text(c"tmpfs");
            child.call(libc::SYS_mount, [tmpfs, text(c"/tmp"), tmpfs, 0, 0, 0])
        }),
    );
    report.twin("unshare(files)", call(libc::SYS_unshare, flags(libc::CLONE_FILES)));
    report.twin("unshare(file system)", call(libc::SYS_unshare, flags(libc::CLONE_FS)));
    report.twin("clone()", clone(0));
    report.twin(
        "thread",
        std::thread::Builder::new().spawn(|| ()).map(std::thread::JoinHandle::join),
    );
    Ok(report)
}

/// Enters the namespaces of PID 1, and asks with a bad descriptor, which tells a filter from a lookup.
pub(super) fn setns(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("setns");
    let names = ["user", "mnt", "net", "pid", "uts", "ipc", "cgroup", "time"];
    for name in names {
        for owner in ["1", "self"] {
            let path = format!("/proc/{owner}/ns/{name}");
            let entered = match File::open(&path) {
                Ok(file) => call(libc::SYS_setns, [file.as_raw_fd() as usize, 0, 0, 0, 0, 0]),
                Err(error) => Ended::from(Err::<(), _>(error)),
            };
            report.attempt(format!("setns({path})"), entered);
        }
    }
    report.attempt("setns(-1)", call(libc::SYS_setns, [usize::MAX, 0, 0, 0, 0, 0]));
    let everything = KINDS.iter().fold(0, |all, (_, flag)| all | flag) as usize;
    report.attempt(
        "setns(pidfd of 1, everything)",
        raw::in_child(|child| {
            let pidfd = child.call(libc::SYS_pidfd_open, [1, 0, 0, 0, 0, 0])? as usize;
            child.call(libc::SYS_setns, [pidfd, everything, 0, 0, 0, 0])
        }),
    );
    for name in names {
        let path = format!("/proc/self/ns/{name}");
        if let Ok(link) = fs::read_link(&path) {
            report.fact(name, link.display().to_string());
        }
    }
    report.twin("readlink(/proc/self/ns/user)", fs::read_link("/proc/self/ns/user"));
    report.twin("readlink(/proc/self/ns/net)", fs::read_link("/proc/self/ns/net"));
    Ok(report)
}

fn flags(flags: i32) -> [usize; 6] {
    [flags as usize, 0, 0, 0, 0, 0]
}

fn clone(flag: i32) -> Ended {
    raw::in_child(|child| {
        let made = child.call(libc::SYS_clone, flags(flag | libc::SIGCHLD))?;
        if made == 0 { child.leave() } else { Ok(made) }
    })
}

fn clone3(flag: i32) -> Ended {
    raw::in_child(|child| {
        let mut arguments = CloneArguments {
            flags: flag as u64,
            exit_signal: libc::SIGCHLD as u64,
            ..CloneArguments::default()
        };
        let size = size_of::<CloneArguments>();
        let made = child.call(libc::SYS_clone3, [raw::place(&mut arguments), size, 0, 0, 0, 0])?;
        if made == 0 { child.leave() } else { Ok(made) }
    })
}
