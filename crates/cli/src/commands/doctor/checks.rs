//! The checks, one function each.

use std::path::Path;

use belljar_policy::limits::format_bytes;

use super::host::Host;
use super::{Finding, State, cgroups};

/// Id-mapped layers of overlays; the new mount interface.
const OLDEST_KERNEL: (u32, u32) = (5, 19);

/// A few sandboxes with the default disk limit.
const ROOM: u64 = 4 << 30;

pub(super) fn all(host: &Host, state_dir: &Path) -> Vec<Finding> {
    vec![
        kernel(host),
        user_namespaces(host),
        cgroups::check(host),
        seccomp(host),
        landlock(host),
        overlay(host),
        disk_images(host),
        room(state_dir),
    ]
}

fn kernel(host: &Host) -> Finding {
    let check = "kernel";
    let release = host.read("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse::<u32>);
    let version = (numbers.next(), numbers.next());
    match version {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= OLDEST_KERNEL => {
            Finding::ok(check, format!("Linux {release}"))
        }
        (Some(Ok(_)), Some(Ok(_))) => Finding::gap(
            check,
            State::Missing,
            format!("Linux {release} is older than 5.19"),
            "use a newer kernel",
        ),
        _ => Finding::gap(
            check,
            State::Weaker,
            "the kernel's version cannot be read",
            "mount /proc with /proc/sys",
        ),
    }
}

fn user_namespaces(host: &Host) -> Finding {
    let check = "user namespaces";
    let is = |path: &str, value: &str| host.read(path).as_deref() == Some(value);
    if !host.exists("/proc/self/ns/user") {
        return Finding::gap(
            check,
            State::Missing,
            "the kernel was built without them",
            "use a kernel with CONFIG_USER_NS",
        );
    }
    if is("/proc/sys/user/max_user_namespaces", "0") {
        return Finding::gap(
            check,
            State::Missing,
            "switched off for everybody",
            permanent("user.max_user_namespaces=28633"),
        );
    }
    if host.is_root {
        return Finding::ok(check, "available");
    }
    if is("/proc/sys/kernel/unprivileged_userns_clone", "0") {
        return Finding::gap(
            check,
            State::Missing,
            "switched off for ordinary users",
            permanent("kernel.unprivileged_userns_clone=1"),
        );
    }
    if is("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1") {
        return Finding::gap(
            check,
            State::Missing,
            "AppArmor takes all rights in them from ordinary users",
            apparmor(&host.program),
        );
    }
    Finding::ok(check, "available for ordinary users")
}

/// The command that sets a kernel parameter now and after the next start.
fn permanent(parameter: &str) -> String {
    format!("echo '{parameter}' | sudo tee /etc/sysctl.d/90-belljar.conf && sudo sysctl --system")
}

/// A profile that confines nothing but lets this one program use user namespaces.
fn apparmor(program: &str) -> String {
    format!(
        "printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile belljar {program} flags=(unconfined) {{\\n  userns,\\n}}\\n' \
         | sudo tee /etc/apparmor.d/belljar && sudo apparmor_parser -r /etc/apparmor.d/belljar"
    )
}

fn seccomp(host: &Host) -> Finding {
    let check = "seccomp";
    match host.read("/proc/sys/kernel/seccomp/actions_avail") {
        Some(actions) if actions.contains("errno") && actions.contains("kill_process") => {
            Finding::ok(check, "system calls can be filtered")
        }
        _ => Finding::gap(
            check,
            State::Missing,
            "the kernel was built without filters",
            "use a kernel with CONFIG_SECCOMP_FILTER",
        ),
    }
}

fn landlock(host: &Host) -> Finding {
    let check = "Landlock";
    match host.landlock {
        0 => Finding::gap(
            check,
            State::Weaker,
            "not active: the file system has one wall instead of two",
            "add `landlock` to the kernel's `lsm=` parameter (Linux 5.13 and later)",
        ),
        version => Finding::ok(check, format!("version {version}")),
    }
}

fn overlay(host: &Host) -> Finding {
    let check = "overlay file system";
    let known = host.read("/proc/filesystems").unwrap_or_default();
    if known.lines().any(|line| line.split_whitespace().last() == Some("overlay")) {
        return Finding::ok(check, "available");
    }
    Finding::gap(
        check,
        State::Missing,
        "not loaded: `--writable` and workspace layers need it",
        "sudo modprobe overlay && echo overlay | sudo tee /etc/modules-load.d/belljar.conf",
    )
}

fn disk_images(host: &Host) -> Finding {
    let check = "disk images";
    if !host.is_root {
        return Finding::ok(check, "not for ordinary users; disks are in memory");
    }
    if host.exists("/dev/loop-control") {
        return Finding::ok(check, "loop devices are available");
    }
    Finding::gap(
        check,
        State::Weaker,
        "no loop devices: disks are in memory and count against it",
        "sudo modprobe loop && echo loop | sudo tee /etc/modules-load.d/belljar-loop.conf",
    )
}

fn room(state_dir: &Path) -> Finding {
    let check = "state directory";
    let shown = state_dir.display();
    match rustix::fs::statvfs(state_dir) {
        Err(error) => Finding::gap(
            check,
            State::Missing,
            format!("`{shown}` cannot be used: {error}"),
            "make it, or set BELLJAR_STATE_DIR to a directory that you own",
        ),
        Ok(facts) => {
            let free = facts.f_bavail.saturating_mul(facts.f_frsize);
            if free >= ROOM {
                return Finding::ok(check, format!("`{shown}`, {} free", format_bytes(free)));
            }
            Finding::gap(
                check,
                State::Weaker,
                format!("`{shown}` has only {} free", format_bytes(free)),
                "free some space, or set BELLJAR_STATE_DIR to a larger disk",
            )
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Check = fn(&Host) -> Finding;

    fn state(check: Check, files: &[(&str, &str)], is_root: bool) -> (State, String) {
        let (_directory, host) = Host::recorded(files, is_root);
        let finding = check(&host);
        assert_eq!(finding.is_gap(), finding.remedy.is_some(), "a gap has a remedy");
        (finding.state, finding.remedy.unwrap_or_default())
    }

    #[test]
    fn kernels() {
        let check = |release: &str, expected: State| {
            let found = state(kernel, &[("/proc/sys/kernel/osrelease", release)], true).0;
            assert_eq!(found, expected, "{release}");
        };
        check("6.18.5\n", State::Ok);
        check("5.19.0-generic\n", State::Ok);
        check("5.18.0\n", State::Missing);
        check("4.19.0\n", State::Missing);
        check("odd\n", State::Weaker);
        assert_eq!(state(kernel, &[], true).0, State::Weaker);
    }

    #[test]
    fn user_namespaces_for_root_and_others() {
        let check = |files: &[(&str, &str)], is_root: bool, expected: State, remedy: &str| {
            let mut all = vec![("/proc/self/ns/user", "")];
            all.extend_from_slice(files);
            let (found, text) = state(user_namespaces, &all, is_root);
            assert_eq!(found, expected, "{files:?} {is_root}");
            assert!(text.contains(remedy), "{text}");
        };
        let most = "/proc/sys/user/max_user_namespaces";
        let clone = "/proc/sys/kernel/unprivileged_userns_clone";
        let apparmor = "/proc/sys/kernel/apparmor_restrict_unprivileged_userns";
        check(&[(most, "100\n")], false, State::Ok, "");
        check(&[(most, "0\n")], true, State::Missing, "user.max_user_namespaces=28633");
        check(&[(clone, "0\n")], true, State::Ok, "");
        check(&[(clone, "0\n")], false, State::Missing, "kernel.unprivileged_userns_clone=1");
        check(&[(clone, "1\n"), (apparmor, "0\n")], false, State::Ok, "");
        check(&[(apparmor, "1\n")], false, State::Missing, "profile belljar /usr/bin/belljar");
        check(&[(apparmor, "1\n")], true, State::Ok, "");
        assert_eq!(state(user_namespaces, &[], true).0, State::Missing);
    }

    #[test]
    fn kernel_features() {
        let actions = "/proc/sys/kernel/seccomp/actions_avail";
        assert_eq!(state(seccomp, &[(actions, "kill_process errno allow")], true).0, State::Ok);
        assert_eq!(state(seccomp, &[], true).0, State::Missing);
        let known = [("/proc/filesystems", "nodev\tproc\nnodev\toverlay\n")];
        assert_eq!(state(overlay, &known, true).0, State::Ok);
        let unknown = [("/proc/filesystems", "nodev\toverlayish\n")];
        assert_eq!(state(overlay, &unknown, true).0, State::Missing);
        assert_eq!(state(disk_images, &[("/dev/loop-control", "")], true).0, State::Ok);
        assert_eq!(state(disk_images, &[], true).0, State::Weaker);
        assert_eq!(state(disk_images, &[], false).0, State::Ok);
        let (_directory, mut host) = Host::recorded(&[], true);
        assert_eq!(landlock(&host).state, State::Ok);
        host.landlock = 0;
        assert_eq!(landlock(&host).state, State::Weaker);
    }

    #[test]
    fn a_state_directory_that_is_not_there_is_a_gap() {
        assert_eq!(room(Path::new("/nonexistent/belljar")).state, State::Missing);
    }
}
