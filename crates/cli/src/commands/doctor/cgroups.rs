//! Whether limits can be enforced by control groups.
//!
//! Reads only; the launcher is the one that makes groups. A host has version 2, version 1, or both with the
//! controllers on the old side. An ordinary user needs a part of version 2 that was delegated to it.

use super::host::Host;
use super::{Finding, State};

const CHECK: &str = "control groups";
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

const DELEGATE: &str = "sudo mkdir -p /etc/systemd/system/user@.service.d && \
printf '[Service]\\nDelegate=cpu memory pids\\n' | sudo tee /etc/systemd/system/user@.service.d/belljar.conf && \
sudo systemctl daemon-reload, then log in again; \
or for one command: systemd-run --user --scope -p Delegate=yes belljar …";

pub(super) fn check(host: &Host) -> Finding {
    let mounts = host.read("/proc/self/mountinfo").unwrap_or_default();
    let mounts: Vec<Mount> = mounts.lines().filter_map(Mount::parse).collect();
    if mounts.is_empty() {
        return Finding::gap(
            CHECK,
            State::Weaker,
            "none are mounted: limits fall to weaker mechanisms",
            "sudo mount -t cgroup2 none /sys/fs/cgroup",
        );
    }
    if host.is_root { for_root(host, &mounts) } else { for_user(host, &mounts) }
}

fn for_root(host: &Host, mounts: &[Mount]) -> Finding {
    let mut places = Vec::new();
    let mut missing = Vec::new();
    for controller in CONTROLLERS {
        let found = mounts.iter().find(|mount| mount.has(host, controller));
        match found {
            Some(mount) => places.push(format!("{controller} (version {})", mount.version)),
            None => missing.push(controller),
        }
    }
    if missing.is_empty() {
        return Finding::ok(CHECK, places.join(", "));
    }
    Finding::gap(
        CHECK,
        State::Weaker,
        format!("no controller for {}", missing.join(", ")),
        format!(
            "start the kernel with {}",
            missing
                .iter()
                .map(|name| format!("cgroup_enable={name}"))
                .collect::<Vec<_>>()
                .join(" ")
        ),
    )
}

fn for_user(host: &Host, mounts: &[Mount]) -> Finding {
    let Some(unified) = mounts.iter().find(|mount| mount.version == 2) else {
        return Finding::gap(
            CHECK,
            State::Weaker,
            "only version 1, which ordinary users cannot use",
            "start the kernel with systemd.unified_cgroup_hierarchy=1, or run belljar as root",
        );
    };
    let own = host.read("/proc/self/cgroup").unwrap_or_default();
    let own = own.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or("/").to_owned();
    let group = format!("{}{}", unified.point, own.trim_end_matches('/'));
    if !host.is_writable(&format!("{group}/cgroup.procs")) {
        return Finding::gap(CHECK, State::Weaker, "nothing is delegated to this user", DELEGATE);
    }
    let available = host.read(&format!("{group}/cgroup.controllers")).unwrap_or_default();
    let missing: Vec<&str> = CONTROLLERS
        .into_iter()
        .filter(|name| !available.split_whitespace().any(|have| have == *name))
        .collect();
    if missing.is_empty() {
        return Finding::ok(CHECK, "memory, cpu and pids are delegated to this user");
    }
    Finding::gap(
        CHECK,
        State::Weaker,
        format!("{} not delegated to this user", missing.join(", ")),
        DELEGATE,
    )
}

/// A mounted hierarchy.
struct Mount {
    version: u8,
    point: String,
    options: Vec<String>,
}

impl Mount {
    /// From a line of `/proc/self/mountinfo`.
    fn parse(line: &str) -> Option<Self> {
        let (before, after) = line.split_once(" - ")?;
        let point = before.split(' ').nth(4)?.to_owned();
        let mut after = after.split(' ');
        let version = match after.next()? {
            "cgroup2" => 2,
            "cgroup" => 1,
            _ => return None,
        };
        let options = after.nth(1).unwrap_or_default().split(',').map(str::to_owned).collect();
        Some(Self { version, point, options })
    }

    fn has(&self, host: &Host, controller: &str) -> bool {
        if self.version == 1 {
            return self.options.iter().any(|option| option == controller);
        }
        let available = host.read(&format!("{}/cgroup.controllers", self.point));
        available.unwrap_or_default().split_whitespace().any(|name| name == controller)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V2: &str = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n";
    const HYBRID: &str = "\
32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
";

    fn found(files: &[(&str, &str)], is_root: bool) -> (State, String) {
        let (_directory, host) = Host::recorded(files, is_root);
        let finding = check(&host);
        assert_eq!(finding.is_gap(), finding.remedy.is_some(), "a gap has a remedy");
        (finding.state, finding.detail)
    }

    #[test]
    fn root_uses_whatever_is_mounted() {
        let mountinfo = "/proc/self/mountinfo";
        let controllers = ("/sys/fs/cgroup/cgroup.controllers", "cpuset cpu io memory pids\n");
        let text = "memory (version 2), cpu (version 2), pids (version 2)";
        assert_eq!(found(&[(mountinfo, V2), controllers], true), (State::Ok, text.to_owned()));
        let text = "memory (version 1), cpu (version 1), pids (version 1)";
        assert_eq!(found(&[(mountinfo, HYBRID)], true), (State::Ok, text.to_owned()));
        let few = ("/sys/fs/cgroup/cgroup.controllers", "cpu pids\n");
        assert_eq!(
            found(&[(mountinfo, V2), few], true),
            (State::Weaker, "no controller for memory".to_owned())
        );
        assert_eq!(found(&[], true).0, State::Weaker);
    }

    #[test]
    fn others_need_delegation() {
        let mountinfo = "/proc/self/mountinfo";
        let own = ("/proc/self/cgroup", "0::/user.slice/me.scope\n");
        let procs = ("/sys/fs/cgroup/user.slice/me.scope/cgroup.procs", "");
        let all = ("/sys/fs/cgroup/user.slice/me.scope/cgroup.controllers", "cpu memory pids\n");
        let few = ("/sys/fs/cgroup/user.slice/me.scope/cgroup.controllers", "memory pids\n");
        assert_eq!(found(&[(mountinfo, V2), own, procs, all], false).0, State::Ok);
        assert_eq!(
            found(&[(mountinfo, V2), own, procs, few], false),
            (State::Weaker, "cpu not delegated to this user".to_owned())
        );
        assert_eq!(
            found(&[(mountinfo, V2), own], false),
            (State::Weaker, "nothing is delegated to this user".to_owned())
        );
        let version_1 = "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        assert_eq!(found(&[(mountinfo, version_1)], false).0, State::Weaker);
    }
}
