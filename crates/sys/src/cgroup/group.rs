//! One group: a directory of the same name in each hierarchy that is used.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Cgroups, Controller, Version};

/// The period over which CPU time is shared out. Who has used up their share stands still until it ends: with the kernel's
/// default of 100 ms one command in twenty waits for half of that. Much shorter, and the pieces in which the kernel hands
/// time to each CPU no longer fit in.
const CPU_PERIOD_US: u64 = 20_000;

/// The kernel takes no smaller share of a period: a small limit gets a longer one.
const SMALLEST_QUOTA_US: u64 = 1_000;

/// How long processes may take to stop: they do so on their way out of the kernel, within microseconds.
const FREEZE_ATTEMPTS: usize = 200;
const FREEZE_PAUSE: Duration = Duration::from_micros(500);

/// What to limit; `None` leaves a controller alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    pub memory_bytes: Option<u64>,
    pub cpu_millis: Option<u32>,
    pub pids: Option<u32>,
}

/// What the kernel counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    pub oom_kills: u64,
    pub pids_refused: u64,
    pub memory_bytes: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub cpu_us: Option<u64>,
    pub pids: Option<u32>,
}

/// A group by name. Making the value touches nothing; the directories may or may not exist.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    cgroups: &'a Cgroups,
    parent: String,
    name: String,
}

impl Cgroups {
    /// The group `name` below our own directory `parent` at the top of each branch.
    #[must_use]
    pub fn group(&self, parent: &str, name: &str) -> Group<'_> {
        Group { cgroups: self, parent: parent.to_owned(), name: name.to_owned() }
    }

    /// Moves the calling thread into our own version 1 directories themselves, out of any group below them.
    pub fn enter_parent_version_1(&self, parent: &str) -> io::Result<()> {
        for (version, base) in self.bases() {
            if version == Version::V1 {
                fs::write(base.join(parent).join("tasks"), "0")?;
            }
        }
        Ok(())
    }

    /// Removes our own directories if nothing is left in them.
    pub fn remove_parent(&self, parent: &str) {
        for (_, base) in self.bases() {
            let _ = fs::remove_dir(base.join(parent)); // fails, rightly, while others are there
        }
    }

    /// Names of all groups below `parent`, in any hierarchy.
    #[must_use]
    pub fn groups(&self, parent: &str) -> Vec<String> {
        let mut names: Vec<String> = self
            .bases()
            .iter()
            .filter_map(|(_, base)| fs::read_dir(base.join(parent)).ok())
            .flatten()
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect();
        names.sort();
        names.dedup();
        names
    }
}

impl Group<'_> {
    /// Makes only the version 1 directories, without limits, to be given another name by [`Self::adopt`].
    pub fn create_version_1(&self) -> io::Result<()> {
        self.make_directories(Some(Version::V1))
    }

    /// Takes over the version 1 directories of another group, with whoever is in them, and makes the version 2 ones.
    pub fn adopt(&self, other: &str) -> io::Result<()> {
        for (version, base) in self.cgroups.bases() {
            let parent = base.join(&self.parent);
            if version == Version::V1 {
                fs::rename(parent.join(other), parent.join(&self.name))?;
            }
        }
        self.make_directories(Some(Version::V2))
    }

    fn make_directories(&self, only: Option<Version>) -> io::Result<()> {
        for (version, base) in self.cgroups.bases() {
            if only.is_some_and(|only| only != version) {
                continue;
            }
            let parent = base.join(&self.parent);
            // Mostly the parent is there. Another process may remove it, empty, between our two steps.
            for attempt in 0.. {
                match fs::create_dir(parent.join(&self.name)) {
                    Ok(()) => break,
                    Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < 10 => {}
                    Err(error) => return Err(error),
                }
                match fs::create_dir(&parent) {
                    Ok(()) if version == Version::V2 => pass_controllers_on(&base, &parent),
                    Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                        return Err(error);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Sets the limits.
    pub fn limit(&self, limits: &Limits) -> io::Result<()> {
        if let Some(bytes) = limits.memory_bytes {
            self.limit_memory(bytes)?;
        }
        if let Some(millis) = limits.cpu_millis {
            let (quota, period) = cpu_share(millis);
            match self.version(Controller::Cpu) {
                Some(Version::V2) => {
                    self.write(Controller::Cpu, "cpu.max", &format!("{quota} {period}"))?;
                }
                Some(Version::V1) => {
                    self.write(Controller::Cpu, "cpu.cfs_period_us", &period.to_string())?;
                    self.write(Controller::Cpu, "cpu.cfs_quota_us", &quota.to_string())?;
                }
                None => return Err(io::ErrorKind::Unsupported.into()),
            }
        }
        if let Some(pids) = limits.pids {
            self.write(Controller::Pids, "pids.max", &pids.to_string())?;
        }
        Ok(())
    }

    fn limit_memory(&self, bytes: u64) -> io::Result<()> {
        let bytes = bytes.to_string();
        match self.version(Controller::Memory) {
            Some(Version::V2) => {
                self.write(Controller::Memory, "memory.max", &bytes)?;
                // Absent where the kernel has no swap accounting, and then there is no swap to limit.
                self.write_if_there(Controller::Memory, "memory.swap.max", "0")?;
                self.write_if_there(Controller::Memory, "memory.oom.group", "0")
            }
            Some(Version::V1) => {
                let both = "memory.memsw.limit_in_bytes";
                // Memory alone may never be allowed more than memory and swap: a group that is given more than it had
                // gets the latter first, one that is given less gets it last.
                if self.write(Controller::Memory, "memory.limit_in_bytes", &bytes).is_err() {
                    self.write_if_there(Controller::Memory, both, &bytes)?;
                    self.write(Controller::Memory, "memory.limit_in_bytes", &bytes)?;
                }
                self.write_if_there(Controller::Memory, both, &bytes)?;
                self.write_if_there(Controller::Memory, "memory.swappiness", "0")
            }
            None => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Lets `uid` make groups below this one in the version 2 hierarchy and move its processes among them.
    pub fn delegate(&self, uid: u32, gid: u32) -> io::Result<()> {
        let Some(directory) = self.unified() else { return Ok(()) };
        let owner = (Some(rustix::fs::Uid::from_raw(uid)), Some(rustix::fs::Gid::from_raw(gid)));
        for path in [directory.clone(), directory.join("cgroup.procs")] {
            rustix::fs::chown(&path, owner.0, owner.1)?;
        }
        Ok(())
    }

    /// The version 2 directory, for starting a process in it.
    pub fn open_unified(&self) -> io::Result<Option<OwnedFd>> {
        use rustix::fs::{Mode, OFlags, open};
        let Some(directory) = self.unified() else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Some(open(&directory, flags, Mode::empty())?))
    }

    /// Moves the calling thread into the version 1 directories; version 2 is entered at clone time.
    ///
    /// A thread that moves itself by way of `tasks` spares the kernel a lock over all processes, which can take it a
    /// whole RCU grace period (milliseconds) to get.
    pub fn enter_version_1(&self) -> io::Result<()> {
        for (version, directory) in self.directories() {
            if version == Version::V1 {
                fs::write(directory.join("tasks"), "0")?;
            }
        }
        Ok(())
    }

    /// Kills every process in the group and below.
    pub fn kill(&self) {
        if let Some(unified) = self.unified()
            && fs::write(unified.join("cgroup.kill"), "1").is_ok()
        {
            return;
        }
        for (_, directory) in self.directories() {
            for pid in
                fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default().lines()
            {
                if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw) {
                    let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
                }
            }
        }
    }

    /// Stops every process in the group and below, or lets them go on. Returns when all have stopped, or when those that
    /// have not wait in the kernel for something: they stop before they run again.
    ///
    /// `Unsupported` where there is no version 2 hierarchy: the old freezer keeps its processes from being killed.
    pub fn freeze(&self, frozen: bool) -> io::Result<()> {
        let unified = self.unified().ok_or(io::ErrorKind::Unsupported)?;
        fs::write(unified.join("cgroup.freeze"), if frozen { "1" } else { "0" })?;
        for _ in 0..FREEZE_ATTEMPTS {
            let events = fs::read_to_string(unified.join("cgroup.events"))?;
            if keyed(&events, "frozen") == Some(u64::from(frozen)) {
                break;
            }
            std::thread::sleep(FREEZE_PAUSE);
        }
        Ok(())
    }

    /// Removes the directories and those below them.
    /// An error means that something is still alive inside.
    pub fn remove(&self) -> io::Result<()> {
        for (_, base) in self.cgroups.bases() {
            remove_tree(&base.join(&self.parent).join(&self.name))?;
        }
        Ok(())
    }

    #[must_use]
    pub fn counters(&self) -> Counters {
        let (oom_file, usage_file, peak_file) = match self.version(Controller::Memory) {
            Some(Version::V1) => {
                ("memory.oom_control", "memory.usage_in_bytes", "memory.max_usage_in_bytes")
            }
            _ => ("memory.events", "memory.current", "memory.peak"),
        };
        let memory = |file: &str| self.read(Controller::Memory, file);
        let pids = |file: &str| self.read(Controller::Pids, file);
        let cpu = self.unified().and_then(|path| fs::read_to_string(path.join("cpu.stat")).ok());
        Counters {
            oom_kills: memory(oom_file).and_then(|text| keyed(&text, "oom_kill")).unwrap_or(0),
            pids_refused: pids("pids.events").and_then(|text| keyed(&text, "max")).unwrap_or(0),
            memory_bytes: memory(usage_file).and_then(|text| text.trim().parse().ok()),
            memory_peak_bytes: memory(peak_file).and_then(|text| text.trim().parse().ok()),
            cpu_us: cpu.and_then(|text| keyed(&text, "usage_usec")),
            pids: pids("pids.current").and_then(|text| text.trim().parse().ok()),
        }
    }

    fn version(&self, controller: Controller) -> Option<Version> {
        self.cgroups.branch(controller).map(|branch| branch.version)
    }

    fn unified(&self) -> Option<PathBuf> {
        self.cgroups.unified.as_ref().map(|base| base.join(&self.parent).join(&self.name))
    }

    fn directories(&self) -> impl Iterator<Item = (Version, PathBuf)> {
        self.cgroups
            .bases()
            .into_iter()
            .map(|(version, base)| (version, base.join(&self.parent).join(&self.name)))
    }

    fn file(&self, controller: Controller, file: &str) -> Option<PathBuf> {
        let branch = self.cgroups.branch(controller)?;
        Some(branch.base.join(&self.parent).join(&self.name).join(file))
    }

    fn write(&self, controller: Controller, file: &str, value: &str) -> io::Result<()> {
        let path = self.file(controller, file).ok_or(io::ErrorKind::Unsupported)?;
        fs::write(path, value)
    }

    fn write_if_there(&self, controller: Controller, file: &str, value: &str) -> io::Result<()> {
        match self.write(controller, file, value) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        }
    }

    fn read(&self, controller: Controller, file: &str) -> Option<String> {
        fs::read_to_string(self.file(controller, file)?).ok()
    }
}

fn pass_controllers_on(base: &Path, parent: &Path) {
    let on = fs::read_to_string(base.join("cgroup.subtree_control")).unwrap_or_default();
    for name in on.split_whitespace().filter(|name| ["memory", "cpu", "pids"].contains(name)) {
        let _ = fs::write(parent.join("cgroup.subtree_control"), format!("+{name}"));
    }
}

fn remove_tree(directory: &Path) -> io::Result<()> {
    match fs::remove_dir(directory) {
        Ok(()) => return Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(_) => {}
    }
    for entry in fs::read_dir(directory)?.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_tree(&entry.path())?;
        }
    }
    fs::remove_dir(directory)
}

/// Quota and period, in microseconds, of so many thousandths of a CPU.
fn cpu_share(millis: u32) -> (u64, u64) {
    let millis = u64::from(millis).max(1);
    let quota = millis * CPU_PERIOD_US / 1000;
    if quota >= SMALLEST_QUOTA_US {
        (quota, CPU_PERIOD_US)
    } else {
        (SMALLEST_QUOTA_US, SMALLEST_QUOTA_US * 1000 / millis)
    }
}

/// The value of a `key value` line.
fn keyed(text: &str, key: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::super::Branch;
    use super::*;

    /// A plain directory stands in for the kernel's: it takes the same writes and keeps them readable.
    fn recorded_version_2() -> (tempfile::TempDir, Cgroups) {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("cgroup.subtree_control"), "memory pids cpu").unwrap();
        let branch = Some(Branch { version: Version::V2, base: root.path().to_owned() });
        let cgroups = Cgroups {
            memory: branch.clone(),
            cpu: branch.clone(),
            pids: branch,
            unified: Some(root.path().to_owned()),
        };
        (root, cgroups)
    }

    #[test]
    fn version_2_limits_go_to_the_version_2_files() {
        let (root, cgroups) = recorded_version_2();
        let group = cgroups.group("parent", "one");
        let limits =
            Limits { memory_bytes: Some(1 << 29), cpu_millis: Some(1500), pids: Some(256) };
        group.adopt("nobody").unwrap();
        group.limit(&limits).unwrap();
        let read =
            |file: &str| fs::read_to_string(root.path().join("parent/one").join(file)).unwrap();
        assert_eq!(read("memory.max"), "536870912");
        assert_eq!(read("cpu.max"), "30000 20000");
        assert_eq!(read("pids.max"), "256");
    }

    #[test]
    fn shares_of_a_cpu_are_exact_and_no_smaller_than_the_kernel_takes() {
        for (millis, quota, period) in [
            (10, 1_000, 100_000),
            (40, 1_000, 25_000),
            (50, 1_000, 20_000),
            (500, 10_000, 20_000),
            (1_000, 20_000, 20_000),
            (1_024_000, 20_480_000, 20_000),
        ] {
            assert_eq!(cpu_share(millis), (quota, period), "{millis}");
        }
        for millis in 10..2000 {
            let (quota, period) = cpu_share(millis);
            let exact = quota * 1000 / period;
            assert!(quota >= SMALLEST_QUOTA_US && exact.abs_diff(millis.into()) <= 1, "{millis}");
        }
    }

    /// On the real thing where it is version 1: only the kernel knows which order it takes.
    #[test]
    fn memory_limits_go_up_and_down() {
        let cgroups = Cgroups::detect(Path::new("/"), true);
        let parent = format!("belljar-limits-{}", std::process::id());
        let group = cgroups.group(&parent, "one");
        if group.version(Controller::Memory) != Some(Version::V1)
            || group.create_version_1().is_err()
        {
            eprintln!(
                "SKIPPED memory_limits_go_up_and_down: no version 1 memory group can be made"
            );
            return;
        }
        let limited = [256 << 20, 512 << 20, 128 << 20].map(|bytes| {
            group.limit(&Limits { memory_bytes: Some(bytes), ..Limits::default() }).err()
        });
        group.remove().unwrap();
        cgroups.remove_parent(&parent);
        assert!(limited.iter().all(Option::is_none), "{limited:?}");
    }

    #[test]
    fn version_2_counters_are_read_from_events() {
        let (root, cgroups) = recorded_version_2();
        let group = cgroups.group("parent", "one");
        group.adopt("nobody").unwrap();
        let write = |file: &str, text: &str| {
            fs::write(root.path().join("parent/one").join(file), text).unwrap();
        };
        write("memory.events", "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n");
        write("memory.current", "4096\n");
        write("pids.events", "max 7\n");
        write("cpu.stat", "usage_usec 99\nuser_usec 50\n");
        let counters = group.counters();
        assert_eq!((counters.oom_kills, counters.pids_refused), (2, 7));
        assert_eq!((counters.memory_bytes, counters.cpu_us), (Some(4096), Some(99)));
    }

    #[test]
    fn freezing_is_written_and_waited_for() {
        let (root, cgroups) = recorded_version_2();
        let group = cgroups.group("parent", "one");
        group.adopt("nobody").unwrap();
        let file = |name: &str| root.path().join("parent/one").join(name);
        for (frozen, word) in [(true, "1"), (false, "0")] {
            fs::write(file("cgroup.events"), format!("populated 1\nfrozen {word}\n")).unwrap();
            group.freeze(frozen).unwrap();
            assert_eq!(fs::read_to_string(file("cgroup.freeze")).unwrap(), word);
        }
        let none = Cgroups::default();
        let error = none.group("parent", "one").freeze(true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }

    #[test]
    fn groups_are_listed_and_removal_of_nothing_succeeds() {
        let (_root, cgroups) = recorded_version_2();
        assert!(cgroups.group("parent", "never").remove().is_ok());
        cgroups.group("parent", "one").adopt("nobody").unwrap();
        cgroups.group("parent", "two").adopt("nobody").unwrap();
        assert_eq!(cgroups.groups("parent"), ["one", "two"]);
    }
}
