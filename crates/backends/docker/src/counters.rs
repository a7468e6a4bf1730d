//! What the kernel counted: from the container's own cgroup where the engine is on this host, else from the engine.

use std::fs;
use std::path::{Path, PathBuf};

use belljar_backend::Counters;
use bollard::models::ContainerStatsResponse;

/// Where cgroups are mounted. Version 1 has a directory per controller below it.
const MOUNT: &str = "/sys/fs/cgroup";

/// The directories of a container's cgroup.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cgroup {
    memory: Option<PathBuf>,
    cpu: Option<PathBuf>,
    pids: Option<PathBuf>,
}

impl Cgroup {
    /// The one of a process, by what the kernel says of it.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let text = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        Some(Self::parse(&text, Path::new(MOUNT)))
    }

    fn parse(text: &str, mount: &Path) -> Self {
        let mut found = Self::default();
        let mut unified = None;
        for line in text.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let below = |name: &str| {
                let directory = mount.join(name).join(path.trim_start_matches('/'));
                directory.is_dir().then_some(directory)
            };
            if controllers.is_empty() {
                unified = below("").map(with_limits);
            }
            for controller in controllers.split(',') {
                match controller {
                    "memory" => found.memory = below("memory"),
                    "cpuacct" => found.cpu = below(controllers).or_else(|| below("cpuacct")),
                    "pids" => found.pids = below("pids"),
                    _ => {}
                }
            }
        }
        found.memory = found.memory.or_else(|| unified.clone());
        found.cpu = found.cpu.or_else(|| unified.clone());
        found.pids = found.pids.or(unified);
        found
    }

    /// `None`: it is gone.
    pub(crate) fn read(&self) -> Option<Counters> {
        let of = |directory: &Option<PathBuf>, files: &[&str]| {
            files.iter().find_map(|file| fs::read_to_string(directory.as_ref()?.join(file)).ok())
        };
        let number = |directory: &Option<PathBuf>, files: &[&str]| -> Option<u64> {
            of(directory, files)?.trim().parse().ok()
        };
        let pids = number(&self.pids, &["pids.current"])?;
        let oom = of(&self.memory, &["memory.oom_control", "memory.events"]);
        let refused = of(&self.pids, &["pids.events"]);
        let cpu_us = number(&self.cpu, &["cpuacct.usage"]).map(|nanoseconds| nanoseconds / 1000);
        let unified_us = || keyed(&of(&self.cpu, &["cpu.stat"])?, "usage_usec");
        Some(Counters {
            oom_kills: oom.and_then(|text| keyed(&text, "oom_kill")).unwrap_or(0),
            pids_refused: refused.and_then(|text| keyed(&text, "max")).unwrap_or(0),
            memory_bytes: number(&self.memory, &["memory.usage_in_bytes", "memory.current"]),
            memory_peak_bytes: number(&self.memory, &["memory.max_usage_in_bytes", "memory.peak"]),
            cpu_us: cpu_us.or_else(unified_us),
            pids: u32::try_from(pids).ok(),
            ..Counters::default()
        })
    }
}

/// Podman's `crun` puts processes into a group of this name, below the one that has the limits and counts what meets them.
fn with_limits(group: PathBuf) -> PathBuf {
    match group.parent() {
        Some(parent) if group.ends_with("container") => parent.to_owned(),
        _ => group,
    }
}

fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

/// What the engine counted. It knows only whether anything was ever killed for want of memory.
pub(crate) fn from_engine(stats: &ContainerStatsResponse, oom_killed: bool) -> Counters {
    let memory = stats.memory_stats.as_ref();
    let cpu = stats.cpu_stats.as_ref().and_then(|cpu| cpu.cpu_usage.as_ref());
    Counters {
        oom_kills: u64::from(oom_killed),
        memory_bytes: memory.and_then(|memory| memory.usage),
        memory_peak_bytes: memory.and_then(|memory| memory.max_usage),
        cpu_us: cpu.and_then(|cpu| cpu.total_usage).map(|nanoseconds| nanoseconds / 1000),
        pids: stats.pids_stats.as_ref().and_then(|pids| u32::try_from(pids.current?).ok()),
        ..Counters::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_of_cgroups() {
        let mount = tempfile::tempdir().unwrap();
        for directory in ["memory/docker/x", "cpu,cpuacct/docker/x", "docker/x"] {
            fs::create_dir_all(mount.path().join(directory)).unwrap();
        }
        fs::write(mount.path().join("docker/x/pids.current"), "3\n").unwrap();
        fs::write(mount.path().join("docker/x/pids.events"), "max 2\n").unwrap();
        fs::write(
            mount.path().join("memory/docker/x/memory.oom_control"),
            "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n",
        )
        .unwrap();
        fs::write(mount.path().join("cpu,cpuacct/docker/x/cpuacct.usage"), "7000\n").unwrap();
        let text = "4:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n0::/docker/x\n";
        let counters = Cgroup::parse(text, mount.path()).read().unwrap();
        assert_eq!(counters.oom_kills, 5);
        assert_eq!((counters.pids, counters.pids_refused), (Some(3), 2));
        assert_eq!(counters.cpu_us, Some(7));
        assert_eq!(Cgroup::parse("0::/gone\n", mount.path()).read(), None);
        fs::create_dir_all(mount.path().join("docker/x/container")).unwrap();
        let below = Cgroup::parse("0::/docker/x/container\n", mount.path());
        assert_eq!(below.pids, Some(mount.path().join("docker/x")));
        assert_eq!(below.read().unwrap().pids_refused, 2);
    }
}
