//! Kernel settings and kernel addresses.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use crate::raw::{self, Ended, call};
use crate::report::Report;

/// Opens settings for writing. Nothing is written: a descriptor that could be written is the finding.
pub(super) fn settings(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("kernel-settings");
    let paths = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/hotplug",
        "/proc/sys/kernel/poweroff_cmd",
        "/proc/sys/kernel/panic",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/ns_last_pid",
        "/proc/sys/kernel/sysrq",
        "/proc/sys/kernel/yama/ptrace_scope",
        "/proc/sys/kernel/unprivileged_bpf_disabled",
        "/proc/sys/fs/binfmt_misc/register",
        "/proc/sys/fs/suid_dumpable",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/vm/drop_caches",
        "/proc/sys/vm/panic_on_oom",
        "/proc/sys/vm/mmap_min_addr",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/net/ipv4/ping_group_range",
        "/proc/sys/user/max_user_namespaces",
        "/proc/sysrq-trigger",
        "/proc/irq/default_smp_affinity",
        "/proc/mtrr",
        "/proc/latency_stats",
        "/proc/fs/nfsd/threads",
        "/proc/scsi/scsi",
        "/proc/acpi/wakeup",
        "/sys/kernel/uevent_helper",
        "/sys/kernel/mm/ksm/run",
        "/sys/kernel/security/apparmor/.load",
        "/sys/power/state",
        "/sys/module/kernel/parameters/panic",
        "/sys/firmware/efi/efivars",
    ];
    for path in paths {
        report.attempt(format!("open({path}, write)"), OpenOptions::new().write(true).open(path));
    }
    // Lowering the score would make the kernel kill others first.
    report.attempt(
        "write(/proc/self/oom_score_adj, -1000)",
        fs::write("/proc/self/oom_score_adj", "-1000"),
    );
    report.twin("read(/proc/self/status)", fs::read("/proc/self/status"));
    report.twin("write(/proc/self/comm)", fs::write("/proc/self/comm", "belljar-probe"));
    report.twin("read(/proc/sys/kernel/osrelease)", fs::read("/proc/sys/kernel/osrelease"));
    Ok(report)
}

/// Reads places that show kernel addresses or messages. A file of zeros counts as refused.
pub(super) fn pointers(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("kernel-pointers");
    for path in ["/proc/kallsyms", "/proc/modules"] {
        report.attempt(format!("addresses({path})"), addresses(path));
    }
    let files = [
        "/proc/kcore",
        "/proc/kmsg",
        "/proc/vmallocinfo",
        "/proc/slabinfo",
        "/proc/pagetypeinfo",
        "/proc/timer_list",
        "/proc/sched_debug",
        "/proc/keys",
        "/proc/kpageflags",
        "/proc/kpagecount",
        "/proc/asound/cards",
        "/proc/acpi/wakeup",
        "/sys/kernel/debug/sched/debug",
        "/sys/kernel/tracing/trace",
        "/sys/firmware/acpi/tables/DSDT",
        "/boot",
        "/lib/modules",
    ];
    for path in files {
        report.attempt(format!("content({path})"), content(path));
    }
    let mut buffer = [0_u8; 4096];
    let (read_all, place) = (3, raw::place(&mut buffer));
    let messages = call(libc::SYS_syslog, [read_all, place, buffer.len(), 0, 0, 0]);
    report.attempt("syslog(read all)", messages);
    report.twin("content(/proc/meminfo)", content("/proc/meminfo"));
    report.twin("content(/proc/cpuinfo)", content("/proc/cpuinfo"));
    Ok(report)
}

/// Succeeds only if some address in the file is not zero.
fn addresses(path: &str) -> Ended {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) => return Ended::from(Err::<(), _>(error)),
    };
    // kallsyms has the address first, modules last with a prefix.
    let shown = text.lines().any(|line| {
        line.split_whitespace().any(|word| {
            let digits = word.trim_start_matches("0x");
            digits.len() == 16
                && digits.bytes().all(|b| b.is_ascii_hexdigit())
                && digits.bytes().any(|b| b != b'0')
        })
    });
    if shown { Ended::Returned(0) } else { Ended::Failed(libc::EACCES) }
}

/// Succeeds only if there is something to read; masked files and directories are there and empty.
fn content(path: &str) -> io::Result<()> {
    use std::io::Read;
    let absent = || io::Error::from_raw_os_error(libc::ENOENT);
    if fs::metadata(path)?.is_dir() {
        return fs::read_dir(path)?.next().map(drop).ok_or_else(absent);
    }
    let mut open = OpenOptions::new();
    // Messages block when there are none left; having to wait for some is being able to read them.
    match open.read(true).custom_flags(libc::O_NONBLOCK).open(path)?.read(&mut [0; 64]) {
        Ok(0) => Err(absent()),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(()),
        other => other.map(drop),
    }
}
