//! System calls that a sandbox has no use for.
//!
//! Each is made with arguments that can do no harm, mostly a bad descriptor or address: the answer then tells a
//! blocked call (EPERM, ENOSYS) from one that reached the kernel (EBADF, EFAULT, EINVAL).

use std::ffi::OsString;
use std::fs;

use crate::raw::{self, Ended, call, text};
use crate::report::Report;

/// No descriptor, and an address that is never mapped.
const BAD: usize = usize::MAX;

type Row = (&'static str, libc::c_long, [usize; 6]);

/// Large interfaces into the kernel with a history of escapes.
pub(super) fn kernel_interfaces(_: &[OsString]) -> Result<Report, String> {
    const USER_MODE_ONLY: usize = 1;
    const GET_KEYRING_ID: usize = 0;
    const THREAD_KEYRING: usize = -1_isize as usize;
    let mut report = Report::new("kernel-interfaces");
    let (user, name, value) = (text(c"user"), text(c"belljar-probe"), text(c"x"));
    attempt_all(
        &mut report,
        &[
            ("bpf(program load)", libc::SYS_bpf, [5, BAD, 128, 0, 0, 0]),
            ("bpf(map create)", libc::SYS_bpf, [0, BAD, 72, 0, 0, 0]),
            ("perf_event_open", libc::SYS_perf_event_open, [BAD, 0, BAD, BAD, 0, 0]),
            ("userfaultfd", libc::SYS_userfaultfd, [USER_MODE_ONLY, 0, 0, 0, 0, 0]),
            ("io_uring_setup", libc::SYS_io_uring_setup, [1, BAD, 0, 0, 0, 0]),
            ("io_uring_enter", libc::SYS_io_uring_enter, [BAD, 0, 0, 0, 0, 0]),
            ("io_uring_register", libc::SYS_io_uring_register, [BAD, 0, 0, 0, 0, 0]),
            ("keyctl", libc::SYS_keyctl, [GET_KEYRING_ID, THREAD_KEYRING, 1, 0, 0, 0]),
            ("add_key", libc::SYS_add_key, [user, name, value, 1, THREAD_KEYRING, 0]),
            ("request_key", libc::SYS_request_key, [user, name, 0, THREAD_KEYRING, 0, 0]),
            ("fanotify_init", libc::SYS_fanotify_init, [0, 0, 0, 0, 0, 0]),
            ("open_by_handle_at", libc::SYS_open_by_handle_at, [BAD, BAD, 0, 0, 0, 0]),
            ("quotactl", libc::SYS_quotactl, [0, 0, 0, 0, 0, 0]),
            ("lookup_dcookie", libc::SYS_lookup_dcookie, [0, 0, 0, 0, 0, 0]),
        ],
    );
    twin_all(
        &mut report,
        &[
            ("epoll_create1", libc::SYS_epoll_create1, [0; 6]),
            ("eventfd2", libc::SYS_eventfd2, [0; 6]),
            (
                "timerfd_create",
                libc::SYS_timerfd_create,
                [libc::CLOCK_MONOTONIC as usize, 0, 0, 0, 0, 0],
            ),
            ("memfd_create", libc::SYS_memfd_create, [name, 0, 0, 0, 0, 0]),
            ("inotify_init1", libc::SYS_inotify_init1, [0; 6]),
            ("getrandom", libc::SYS_getrandom, [raw::place(&mut 0_u64), 8, 0, 0, 0, 0]),
        ],
    );
    Ok(report)
}

/// What changes the machine: code in the kernel, power, swap, ports, clocks, names. The magic numbers of `reboot` are
/// wrong on purpose, so it could not act even with every right.
pub(super) fn machine_control(_: &[OsString]) -> Result<Report, String> {
    const REALTIME: usize = libc::CLOCK_REALTIME as usize;
    let mut report = Report::new("machine-control");
    attempt_all(
        &mut report,
        &[
            ("init_module", libc::SYS_init_module, [BAD, 0, text(c""), 0, 0, 0]),
            ("finit_module(-1)", libc::SYS_finit_module, [BAD, text(c""), 0, 0, 0, 0]),
            ("delete_module", libc::SYS_delete_module, [text(c"belljar-none"), 0, 0, 0, 0, 0]),
            ("kexec_load", libc::SYS_kexec_load, [0, BAD, BAD, BAD, 0, 0]),
            ("kexec_file_load", libc::SYS_kexec_file_load, [BAD, BAD, 0, 0, BAD, 0]),
            ("reboot(wrong magic)", libc::SYS_reboot, [0; 6]),
            ("swapon", libc::SYS_swapon, [text(c"/belljar-none"), 0, 0, 0, 0, 0]),
            ("swapoff", libc::SYS_swapoff, [text(c"/belljar-none"), 0, 0, 0, 0, 0]),
            ("acct", libc::SYS_acct, [text(c"/belljar-none"), 0, 0, 0, 0, 0]),
            ("iopl(3)", libc::SYS_iopl, [3, 0, 0, 0, 0, 0]),
            ("ioperm(0x80)", libc::SYS_ioperm, [0x80, 1, 1, 0, 0, 0]),
            ("clock_settime", libc::SYS_clock_settime, [REALTIME, BAD, 0, 0, 0, 0]),
            ("settimeofday", libc::SYS_settimeofday, [BAD, 0, 0, 0, 0, 0]),
            ("sethostname", libc::SYS_sethostname, [BAD, 4, 0, 0, 0, 0]),
            ("setdomainname", libc::SYS_setdomainname, [BAD, 4, 0, 0, 0, 0]),
            ("vhangup", libc::SYS_vhangup, [0; 6]),
            ("syslog(read all)", libc::SYS_syslog, [3, BAD, 4096, 0, 0, 0]),
            ("syslog(clear)", libc::SYS_syslog, [5, 0, 0, 0, 0, 0]),
        ],
    );
    let mut time = [0_i64; 2];
    let mut machine = [0_u8; 390];
    let mut information = [0_u64; 16];
    twin_all(
        &mut report,
        &[
            (
                "clock_gettime",
                libc::SYS_clock_gettime,
                [REALTIME, raw::place(&mut time), 0, 0, 0, 0],
            ),
            ("nanosleep(0)", libc::SYS_nanosleep, [raw::place(&mut [0_i64; 2]), 0, 0, 0, 0, 0]),
            ("uname", libc::SYS_uname, [raw::place(&mut machine), 0, 0, 0, 0, 0]),
            ("sysinfo", libc::SYS_sysinfo, [raw::place(&mut information), 0, 0, 0, 0, 0]),
        ],
    );
    Ok(report)
}

/// Odd modes of execution. Ordinary Linux and the query are the twins.
pub(super) fn execution_domain(_: &[OsString]) -> Result<Report, String> {
    const QUERY: usize = 0xffff_ffff;
    let mut report = Report::new("execution-domain");
    let domains = [
        ("PER_SVR4", 0x0410_0001),
        ("PER_BSD", 6),
        ("READ_IMPLIES_EXEC", 0x0040_0000),
        ("MMAP_PAGE_ZERO", 0x0010_0000),
        ("ADDR_COMPAT_LAYOUT", 0x0020_0000),
    ];
    for (name, domain) in domains {
        let ended = call(libc::SYS_personality, [domain, 0, 0, 0, 0, 0]);
        report.attempt(format!("personality({name})"), ended);
    }
    let (read, write) = (0, 0x11);
    let mut table = [0_u64; 8];
    let place = raw::place(&mut table);
    attempt_all(
        &mut report,
        &[
            ("modify_ldt(read)", libc::SYS_modify_ldt, [read, place, 64, 0, 0, 0]),
            ("modify_ldt(write)", libc::SYS_modify_ldt, [write, BAD, 16, 0, 0, 0]),
            ("uselib", libc::SYS_uselib, [text(c"/belljar-none"), 0, 0, 0, 0, 0]),
        ],
    );
    twin_all(
        &mut report,
        &[
            ("personality(query)", libc::SYS_personality, [QUERY, 0, 0, 0, 0, 0]),
            ("personality(Linux)", libc::SYS_personality, [0; 6]),
        ],
    );
    report.twin("read(/proc/self/maps)", fs::read("/proc/self/maps"));
    Ok(report)
}

fn attempt_all(report: &mut Report, rows: &[Row]) {
    each(rows, |name, ended| report.attempt(name, ended));
}

fn twin_all(report: &mut Report, rows: &[Row]) {
    each(rows, |name, ended| report.twin(name, ended));
}

fn each(rows: &[Row], mut record: impl FnMut(&'static str, Ended)) {
    for (name, number, arguments) in rows {
        record(name, call(*number, *arguments));
    }
}
