//! Every probe of a wall, run in one sandbox.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use belljar_testkit::{Installation, Sandbox};

use crate::common::{USERS, probe_as};

/// Probes of the walls around a workload, with their arguments.
const PROBES: &[&[&str]] = &[
    &["remount", "/probe"],
    &["mount"],
    &["unshare"],
    &["setns"],
    &["agent"],
    &["hunt", "200"],
    &["kernel-interfaces"],
    &["machine-control"],
    &["execution-domain"],
    &["foreign-entry"],
    &["devices"],
    &["gpu"],
    &["kernel-settings"],
    &["kernel-pointers"],
    &["cgroups"],
    &["privileges"],
    &["sockets"],
    &["terminal"],
    &["descriptors"],
    &["writes", "/probe"], // last: where it can, it removes devices
];

/// What gVisor's kernel lets through, by the beginning of the action, and why it does no harm.
pub(crate) const OF_GVISOR: &[(&str, &str)] = &[
    ("open(/proc/1/environ)", "shown to everybody; the agent's says nothing"),
    ("open(/proc/1/maps)", "shown to everybody; reading its memory is refused"),
    ("open(/proc/1/auxv)", "shown to everybody; reading its memory is refused"),
    ("open(/proc/1/io)", "shown to root; counts only"),
    ("readlink(/proc/1/fd/*)", "names are shown; sockets cannot be opened by them"),
    ("sched_setaffinity(1)", "taken and without effect"),
    ("setpriority(1)", "taken and without effect"),
    ("create(/dev)", "its own devices, in its own memory, for its own root"),
    ("mkdir(/dev)", "as above"),
    ("symlink(/dev)", "as above"),
    ("unlink(/dev/null)", "as above"),
    ("open(/dev/fuse)", "its own device, for file systems of its own"),
    ("open(/dev/net/tun)", "its own device; making an interface is refused"),
    ("write(/proc/self/oom_score_adj", "its own number; the host's kernel never sees it"),
    ("setxattr(security.capability)", "it has no such attributes"),
    ("open(/proc/sys/", "its own settings, for its own root; the host's kernel never sees them"),
    ("open(/proc/sysrq-trigger, write)", "its own file, which does nothing"),
    ("own child)", "it lets nobody trace, not even children"),
    ("personality(", "it has one and does not say which"),
    ("read(/proc/sys/kernel/osrelease)", "it has no such file"),
];

/// Fails the test unless the sandbox holds against all of them, but for what is `known`.
#[track_caller]
pub(crate) fn hold(belljar: &Installation, sandbox: &Sandbox<'_>, known: &[(&str, &str)]) {
    let planted = belljar.probe_directory().join("planted");
    fs::copy(belljar.probe_directory().join("belljar-probe"), &planted).expect("our own file");
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o6755)).expect("our own file");
    let mut wrong = Vec::new();
    for probe in PROBES {
        for user in USERS {
            wrong.extend(violations(sandbox, user, probe, known));
        }
    }
    wrong.extend(violations(sandbox, "user", &["planted", "/probe/planted"], known));
    assert!(wrong.is_empty(), "on {}:\n{}", belljar.mode(), wrong.join("\n"));
    signals(sandbox);
}

fn violations(
    sandbox: &Sandbox<'_>,
    user: &str,
    probe: &[&str],
    known: &[(&str, &str)],
) -> Vec<String> {
    let Some(report) = probe_as(sandbox, user, probe[0], &probe[1..]) else { return Vec::new() };
    let is_known = |line: &String| known.iter().any(|(action, _)| line.contains(action));
    let unexpected = report.violations().into_iter().filter(|line| !is_known(line));
    unexpected.map(|line| format!("{} as {user}: {line}", probe[0])).collect()
}

/// Whoever is inside, and whatever is sent to the agent, it answers afterwards.
fn signals(sandbox: &Sandbox<'_>) {
    let agent = sandbox.agent();
    for user in USERS {
        let _ = probe_as(sandbox, user, "signal-agent", &[]);
        sandbox.exec(["true"]).expect_success();
        assert!(sandbox.agent_is(agent), "the agent was ended by {user}");
    }
}
