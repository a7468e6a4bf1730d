//! Finding the place for groups on this host.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Branch, Cgroups, Version};

const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

impl Cgroups {
    /// Looks at the mounts and the caller's own groups. `root` is `/`, or a recorded tree in tests.
    ///
    /// A privileged caller makes its groups at the top of each hierarchy it sees. An ordinary user needs a part of
    /// the version 2 tree that was delegated to it: the highest directory above its own group that it may write.
    #[must_use]
    pub fn detect(root: &Path, privileged: bool) -> Self {
        let read = |path: &str| fs::read_to_string(root.join(path)).unwrap_or_default();
        let mounts = parse_mounts(&read("proc/self/mountinfo"));
        let own = parse_own(&read("proc/self/cgroup"));
        let mut found = Self::default();
        for mount in &mounts {
            let top = root.join(mount.point.strip_prefix("/").unwrap_or(&mount.point));
            if mount.version == Version::V2 {
                let base = if privileged { Some(top) } else { delegated(&top, &own) };
                let Some(base) = base.filter(|base| writable(base)) else { continue };
                let available = enable_controllers(&base);
                for (name, place) in found.places() {
                    if place.is_none() && available.iter().any(|have| have == name) {
                        *place = Some(Branch { version: Version::V2, base: base.clone() });
                    }
                }
                found.unified = Some(base);
            } else if privileged && writable(&top) {
                for (name, place) in found.places() {
                    if place.is_none() && mount.options.iter().any(|option| option == name) {
                        *place = Some(Branch { version: Version::V1, base: top.clone() });
                    }
                }
            }
        }
        found
    }

    fn places(&mut self) -> [(&'static str, &mut Option<Branch>); 3] {
        let [memory, cpu, pids] = CONTROLLERS;
        [(memory, &mut self.memory), (cpu, &mut self.cpu), (pids, &mut self.pids)]
    }
}

#[derive(Debug, PartialEq, Eq)]
struct CgroupMount {
    version: Version,
    point: PathBuf,
    options: Vec<String>,
}

fn parse_mounts(mountinfo: &str) -> Vec<CgroupMount> {
    mountinfo
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let point = PathBuf::from(before.split(' ').nth(4)?);
            let mut after = after.split(' ');
            let version = match after.next()? {
                "cgroup2" => Version::V2,
                "cgroup" => Version::V1,
                _ => return None,
            };
            let options = after.nth(1).unwrap_or_default().split(',').map(str::to_owned).collect();
            Some(CgroupMount { version, point, options })
        })
        .collect()
}

/// The caller's own version 2 group.
fn parse_own(cgroup: &str) -> PathBuf {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/");
    PathBuf::from(path.trim_start_matches('/'))
}

/// The highest ancestor of the caller's group (or that group) which the caller may change.
fn delegated(top: &Path, own: &Path) -> Option<PathBuf> {
    let mut best = None;
    let mut candidate = Some(own);
    while let Some(path) = candidate {
        let directory = top.join(path);
        if !writable(&directory) || !writable(&directory.join("cgroup.procs")) {
            break;
        }
        best = Some(directory);
        candidate = path.parent();
    }
    best
}

fn writable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok()
}

/// Turns on what can be turned on for children of `base`; returns what is on.
///
/// The kernel refuses while `base` itself has processes (unless it is the root). Where those are only the caller's
/// own, as in a scope made for it, moving them one level down is the documented way; it is tried once.
fn enable_controllers(base: &Path) -> Vec<String> {
    let control = base.join("cgroup.subtree_control");
    let missing = |control: &Path| {
        let on = fs::read_to_string(control).unwrap_or_default();
        CONTROLLERS.into_iter().any(|name| !on.split_whitespace().any(|have| have == name))
    };
    if missing(&control) && !turn_on(&control) && only_self_inside(base) && step_down(base) {
        turn_on(&control);
    }
    let on = fs::read_to_string(&control).unwrap_or_default();
    on.split_whitespace().map(str::to_owned).collect()
}

fn turn_on(control: &Path) -> bool {
    // One at a time: a controller that is unavailable must not take the others with it.
    CONTROLLERS
        .into_iter()
        .map(|name| fs::write(control, format!("+{name}")).is_ok())
        .fold(true, |all, one| all & one)
}

fn only_self_inside(base: &Path) -> bool {
    let inside = fs::read_to_string(base.join("cgroup.procs")).unwrap_or_default();
    let mine = [
        std::process::id(),
        rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get() as u32),
    ];
    !inside.is_empty()
        && inside.lines().all(|line| line.parse().is_ok_and(|pid: u32| mine.contains(&pid)))
}

fn step_down(base: &Path) -> bool {
    let leaf = base.join("belljar-launcher");
    let _ = fs::create_dir(&leaf);
    let inside = fs::read_to_string(base.join("cgroup.procs")).unwrap_or_default();
    inside.lines().all(|pid| fs::write(leaf.join("cgroup.procs"), pid).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A recorded tree: mountinfo, own group, and the files that detection looks at.
    fn recorded(mountinfo: &str, own: &str, files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let write = |path: &str, content: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        };
        write("proc/self/mountinfo", mountinfo);
        write("proc/self/cgroup", own);
        for (path, content) in files {
            write(path, content);
        }
        root
    }

    #[test]
    fn version_2_with_all_controllers() {
        let root = recorded(
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n",
            "0::/system.slice/x.service\n",
            &[("sys/fs/cgroup/cgroup.subtree_control", "cpuset cpu io memory pids")],
        );
        let found = Cgroups::detect(root.path(), true);
        let base = root.path().join("sys/fs/cgroup");
        let branch = Some(Branch { version: Version::V2, base: base.clone() });
        assert_eq!(
            found,
            Cgroups {
                memory: branch.clone(),
                cpu: branch.clone(),
                pids: branch,
                unified: Some(base.clone()),
            }
        );
        assert_eq!(found.bases(), [(Version::V2, base)]);
    }

    #[test]
    fn hybrid_puts_limits_on_version_1_and_killing_on_version_2() {
        let root = recorded(
            "32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
             35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
            "4:memory:/x\n0::/\n",
            &[
                ("sys/fs/cgroup/cpu/cgroup.procs", ""),
                ("sys/fs/cgroup/memory/cgroup.procs", ""),
                ("sys/fs/cgroup/pids/cgroup.procs", ""),
                ("sys/fs/cgroup/unified/cgroup.procs", ""),
            ],
        );
        let found = Cgroups::detect(root.path(), true);
        let branch = |name: &str| {
            Some(Branch {
                version: Version::V1,
                base: root.path().join("sys/fs/cgroup").join(name),
            })
        };
        assert_eq!(found.memory, branch("memory"));
        assert_eq!(found.cpu, branch("cpu"));
        assert_eq!(found.pids, branch("pids"));
        assert_eq!(found.unified, Some(root.path().join("sys/fs/cgroup/unified")));
        assert_eq!(found.bases().len(), 4);
    }

    #[test]
    fn an_ordinary_user_gets_the_highest_delegated_directory() {
        let mountinfo = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        let slice = "sys/fs/cgroup/user.slice/user@1000.service";
        let root = recorded(
            mountinfo,
            "0::/user.slice/user@1000.service/app.slice/run.scope\n",
            &[
                (&format!("{slice}/cgroup.procs"), ""),
                (&format!("{slice}/cgroup.subtree_control"), "cpu memory pids"),
                (&format!("{slice}/app.slice/cgroup.procs"), ""),
                (&format!("{slice}/app.slice/run.scope/cgroup.procs"), ""),
            ],
        );
        // The file is what counts as "may write" here: above the service there is none.
        let found = Cgroups::detect(root.path(), false);
        let base = root.path().join(slice);
        assert_eq!(found.unified, Some(base.clone()));
        assert_eq!(found.memory, Some(Branch { version: Version::V2, base }));
        assert!(found.pids.is_some());
    }

    #[test]
    fn no_cgroups_at_all_is_an_answer() {
        let root = recorded("22 27 0:21 / /proc rw - proc proc rw\n", "", &[]);
        assert_eq!(Cgroups::detect(root.path(), true), Cgroups::default());
    }
}
