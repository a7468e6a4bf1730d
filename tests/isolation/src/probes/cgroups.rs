//! Limits are set through files of control groups; none may be open to the workload.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use crate::report::Report;

const MOUNT: &str = "/sys/fs/cgroup";
/// Enough for every controller and the parents of our own group; a bound in case the host's whole tree is visible.
const MOST_DIRECTORIES: usize = 200;

/// Opens for writing every file by which limits are raised, processes moved, or programs run on the host.
pub(super) fn cgroups(_: &[OsString]) -> Result<Report, String> {
    let mut report = Report::new("cgroups");
    let names = [
        "release_agent",
        "notify_on_release",
        "cgroup.procs",
        "tasks",
        "cgroup.threads",
        "cgroup.subtree_control",
        "cgroup.kill",
        "cgroup.freeze",
        "memory.max",
        "memory.high",
        "memory.swap.max",
        "memory.limit_in_bytes",
        "memory.memsw.limit_in_bytes",
        "memory.oom_control",
        "pids.max",
        "cpu.max",
        "cpu.weight",
        "cpu.cfs_quota_us",
        "cpu.shares",
        "cpuset.cpus",
        "devices.allow",
        "freezer.state",
        "io.max",
    ];
    let directories = directories();
    for directory in &directories {
        for name in names {
            let path = directory.join(name);
            if path.exists() || directory == Path::new(MOUNT) {
                let opened = OpenOptions::new().write(true).open(&path);
                report.attempt(format!("open({}, write)", path.display()), opened);
            }
        }
        let made = directory.join("belljar-probe");
        report.attempt(format!("mkdir({})", made.display()), fs::create_dir(&made));
    }
    report.fact("directories", directories.len());
    report.fact("own", fs::read_to_string("/proc/self/cgroup").unwrap_or_default());
    report.twin("read(/proc/self/cgroup)", fs::read("/proc/self/cgroup"));
    Ok(report)
}

/// The mount point and everything below it, whether or not it is there.
fn directories() -> Vec<PathBuf> {
    let mut found = vec![PathBuf::from(MOUNT)];
    let mut next = 0;
    while next < found.len() && found.len() < MOST_DIRECTORIES {
        let entries = fs::read_dir(&found[next]).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        found.extend(below.map(|entry| entry.path()));
        next += 1;
    }
    found
}
