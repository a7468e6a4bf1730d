//! The probes on the backend `oci`, with every runtime that is installed.
//!
//! What a probe may find on gVisor and nowhere else is listed with the reason: it is answered by gVisor's own kernel, and
//! the host does not notice. Runtimes are found as the server finds them; `./test` has gVisor in a directory of its own.

#![forbid(unsafe_code)]

mod common;

use belljar_testkit::{Installation, Mode, Sandbox, Turn, run_in, skip};
use common::{USERS, probe_as};
use serde_json::Value;

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
    &["descriptors"],
];

/// What gVisor's kernel lets through, by the beginning of the action, and why it does no harm.
const OF_GVISOR: &[(&str, &str)] = &[
    ("open(/proc/1/environ)", "shown to everybody; the agent's says nothing"),
    ("open(/proc/1/maps)", "shown to everybody; reading its memory is refused"),
    ("open(/proc/1/auxv)", "shown to everybody; reading its memory is refused"),
    ("open(/proc/1/io)", "shown to root; counts only"),
    ("readlink(/proc/1/fd/*)", "names are shown; sockets cannot be opened by them"),
    ("sched_setaffinity(1)", "taken and without effect"),
    ("setpriority(1)", "taken and without effect"),
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

#[test]
fn probes_on_runc() {
    on("runc", "runtimes::probes_on_runc", |belljar| probes(belljar, "runc", &[]));
}

#[test]
fn probes_on_runsc() {
    on("runsc", "runtimes::probes_on_runsc", |belljar| probes(belljar, "runsc", OF_GVISOR));
}

/// Runs a body where the runtime works, and says why not where it does not.
fn on(runtime: &'static str, test: &str, body: fn(&Installation)) {
    let root = rustix::process::geteuid().is_root();
    let (reason, found) = if root { state_of(runtime) } else { ("needs root".to_owned(), false) };
    if !found {
        return skip(test, &reason);
    }
    run_in(Mode::Root, test, Turn::shared, body);
}

/// What the probe of the backend says of a runtime.
fn state_of(runtime: &str) -> (String, bool) {
    let belljar = Installation::new(Mode::Root);
    belljar.embed();
    belljar.find_runtimes();
    let probes = belljar.run(["probe", "--backend", "oci", "--json"]).json();
    let probe = probes.as_array().into_iter().flatten().find(|probe| probe["runtime"] == runtime);
    belljar.assert_nothing_left();
    let probe = probe.cloned().unwrap_or(Value::Null);
    let class = if runtime == "runsc" { "kernel" } else { "namespace" };
    assert!(probe["class"] == class, "the class of {runtime}: {probe}");
    (probe["detail"].as_str().unwrap_or_default().to_owned(), probe["works"] == true)
}

fn probes(belljar: &Installation, runtime: &str, known: &[(&str, &str)]) {
    belljar.find_runtimes();
    let sandbox = belljar.create(&["--backend", "oci", "--runtime", runtime]);
    let record = sandbox.inspect();
    assert_eq!(record["isolation"]["runtime"], runtime, "{record}");
    let mut wrong = Vec::new();
    for probe in PROBES {
        for user in USERS {
            wrong.extend(violations(&sandbox, user, probe, known));
        }
    }
    assert!(wrong.is_empty(), "on {runtime}:\n{}", wrong.join("\n"));
    signals(&sandbox);
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
