//! Kernel and privilege: what the workload tries against the kernel it shares with the host.
//!
//! Each test runs as root and rootless, and inside as the ordinary user and as root of the user namespace. The probe
//! tells what it got; the host's side is looked at where there is something to see.

#![forbid(unsafe_code)]

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use belljar_testkit::{Installation, matrix};
use common::{
    USERS, contents, expect_sealed, expect_sealed_for_all, has_one_user, probe, probe_as, report,
    text, words,
};

/// Capabilities that reach beyond a sandbox, whatever namespace they are held in.
const NEVER_HELD: &[(&str, u32)] = &[
    ("DAC_READ_SEARCH", 2),
    ("LINUX_IMMUTABLE", 9),
    ("NET_ADMIN", 12),
    ("NET_RAW", 13),
    ("IPC_OWNER", 15),
    ("SYS_MODULE", 16),
    ("SYS_RAWIO", 17),
    ("SYS_PTRACE", 19),
    ("SYS_PACCT", 20),
    ("SYS_ADMIN", 21),
    ("SYS_BOOT", 22),
    ("SYS_NICE", 23),
    ("SYS_RESOURCE", 24),
    ("SYS_TIME", 25),
    ("SYS_TTY_CONFIG", 26),
    ("MKNOD", 27),
    ("AUDIT_CONTROL", 30),
    ("MAC_OVERRIDE", 32),
    ("MAC_ADMIN", 33),
    ("SYSLOG", 34),
    ("WAKE_ALARM", 35),
    ("BLOCK_SUSPEND", 36),
    ("AUDIT_READ", 37),
    ("PERFMON", 38),
    ("BPF", 39),
    ("CHECKPOINT_RESTORE", 40),
];

matrix! {
    everywhere read_only_mounts_stay_read_only,
    everywhere nothing_can_be_mounted,
    nothing_is_above_the_root,
    no_namespace_can_be_made,
    everywhere no_namespace_can_be_entered,
    everywhere the_agent_is_out_of_reach,
    the_agent_is_out_of_reach_of_who_starts_in_its_memory,
    everywhere signals_do_not_reach_the_agent,
    helpers_of_the_agent_are_out_of_reach,
    everywhere large_kernel_interfaces_are_closed,
    the_machine_cannot_be_controlled,
    odd_execution_domains_are_refused,
    other_entries_into_the_kernel_are_closed,
    everywhere devices_cannot_be_made_or_found,
    kernel_settings_cannot_be_written,
    kernel_addresses_are_hidden,
    limits_cannot_be_raised_through_cgroups,
    everywhere no_privilege_is_held_or_gained,
    planted_privileged_programs_gain_nothing,
    terminals_take_no_injected_input,
    unusual_sockets_are_refused,
    landlock_is_the_second_wall,
    no_descriptor_is_inherited,
}

fn read_only_mounts_stay_read_only(belljar: &Installation) {
    let data = belljar.make_directory("data");
    fs::write(data.join("file"), "as it was").expect("our own file");
    let mount = format!("{}:/data:ro", data.display());
    let sandbox = belljar.create(&["--mount", &mount]);
    expect_sealed_for_all(&sandbox, "remount", &["/data", "/probe"]);
    assert_eq!(fs::read_to_string(data.join("file")).expect("our own file"), "as it was");
    let files: Vec<_> = fs::read_dir(&data).expect("our own directory").flatten().collect();
    assert_eq!(files.len(), 1, "only what was there: {files:?}");
}

fn nothing_can_be_mounted(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let mounts = || fs::read_to_string(format!("/proc/{}/mountinfo", sandbox.agent().0));
    let before = mounts().expect("the agent runs");
    expect_sealed_for_all(&sandbox, "mount", &[]);
    assert_eq!(mounts().expect("the agent runs"), before, "the sandbox's mounts changed");
}

fn nothing_is_above_the_root(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    expect_sealed_for_all(&sandbox, "climb", &[]);
}

fn no_namespace_can_be_made(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    expect_sealed_for_all(&sandbox, "unshare", &[]);
}

fn no_namespace_can_be_entered(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    for (user, report) in expect_sealed_for_all(&sandbox, "setns", &[]) {
        for name in ["user", "mnt", "net", "pid", "uts", "ipc", "cgroup"] {
            if name == "user" && belljar.mode().is_engine() {
                continue; // an engine gives its containers the host's users unless it is set up otherwise
            }
            let ours = fs::read_link(format!("/proc/self/ns/{name}")).expect("a namespace");
            let ours = ours.display().to_string();
            assert_ne!(text(&report, name), ours, "{user} shares the host's {name} namespace");
        }
    }
}

fn the_agent_is_out_of_reach(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let agent = sandbox.agent();
    let look = || {
        let file = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", agent.0)).ok();
        let stat = file("stat").unwrap_or_default();
        let fields: Vec<&str> =
            stat.rsplit(") ").next().unwrap_or_default().split_whitespace().collect();
        // Priority, niceness.
        let schedule = fields.get(15..17).map(|pair| pair.join(" "));
        let status = file("status").unwrap_or_default();
        let cpus = status.lines().find(|line| line.starts_with("Cpus_allowed:")).map(str::to_owned);
        (file("limits"), file("oom_score_adj"), file("comm"), schedule, cpus)
    };
    let before = look();
    expect_sealed_for_all(&sandbox, "agent", &[]);
    assert_eq!(look(), before, "the agent's limits or schedule changed");
    assert!(sandbox.agent_is(agent), "the agent was replaced");
}

/// As root a command that runs alone in a plain sandbox is the agent's guest until it is a program. The other tests' mount
/// of the probe makes the root an overlay, where it is a copy.
fn the_agent_is_out_of_reach_of_who_starts_in_its_memory(belljar: &Installation) {
    let workspace = format!("{}:ro", belljar.probe_directory().display());
    let created = belljar.try_create_plain(&["--workspace", &workspace]);
    let sandbox = created.unwrap_or_else(|refusal| panic!("{}", refusal.finished));
    let agent = sandbox.agent();
    let file = |name: &str| format!("/proc/{}/{name}", agent.0);
    // Whose its memory is tells whether others of its user may look into it.
    let look = || {
        let score = fs::read_to_string(file("oom_score_adj")).expect("the agent runs");
        (score, fs::metadata(file("mem")).expect("the agent runs").uid())
    };
    let before = look();
    let mounts = fs::read_to_string(file("mountinfo")).expect("the agent runs");
    assert!(!mounts.contains(" - overlay "), "nothing would start in its memory:\n{mounts}");
    // What one that fails says is not taken for the next one's word.
    for _ in 0..2 {
        sandbox.exec(["true"]).expect_success();
        assert_eq!(sandbox.exec(["no-such-program"]).code(), 127);
    }
    let users = USERS.into_iter().filter(|user| *user == "user" || !has_one_user(&sandbox));
    for user in users {
        for name in ["agent", "descriptors", "privileges", "cgroups", "climb"] {
            let program = ["/workspace/belljar-probe", name];
            let finished = sandbox.exec_with(&["--user", user], program);
            expect_sealed(&report(&finished), &format!("{name} as {user}"));
        }
    }
    assert_eq!(look(), before, "the agent is not what it was");
    assert!(sandbox.agent_is(agent), "the agent was replaced");
}

fn signals_do_not_reach_the_agent(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let agent = sandbox.agent();
    for user in USERS {
        let Some(report) = probe_as(&sandbox, user, "signal-agent", &[]) else { continue };
        // A call that "worked" is fine if it went nowhere: PID 1 of a namespace takes no signal from inside
        // unless it asked for it.
        assert!(!report.attempts.is_empty());
        assert!(report.twin.iter().all(|twin| twin.outcome.as_str() == "allowed"), "{report}");
        assert_ne!(
            report.facts.get("state").and_then(|s| s.as_str()),
            Some("T"),
            "stopped: {report}"
        );
        assert!(sandbox.agent_is(agent), "the agent ended after signals from {user}");
    }
    assert_eq!(sandbox.exec(["echo", "still here"]).expect_success().text(), "still here\n");
}

fn helpers_of_the_agent_are_out_of_reach(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let mut hunt = sandbox.start_with(&[], [common::PROBE, "hunt", "2000"]);
    // Each of these makes the agent fork.
    for round in 0..20 {
        let write = format!("/workspace/file-{round}=content");
        let arguments = ["run", "--sandbox", sandbox.id(), "--write", &write, "--", "true"];
        belljar.run(arguments).expect_success();
    }
    let report = belljar_isolation::Report::parse(&hunt.line()).expect("a report");
    hunt.finish().expect_success();
    expect_sealed(&report, "while the agent worked");
    assert!(
        common::number(&report, "helpers_seen") > 0,
        "nothing was there to be hunted: {report}"
    );
}

fn large_kernel_interfaces_are_closed(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    expect_sealed_for_all(&sandbox, "kernel-interfaces", &[]);
}

fn the_machine_cannot_be_controlled(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let paths = [
        "/proc/swaps",
        "/proc/modules",
        "/proc/sys/kernel/hostname",
        "/proc/sys/kernel/domainname",
    ];
    let before = contents(&paths);
    expect_sealed_for_all(&sandbox, "machine-control", &[]);
    assert_eq!(contents(&paths), before, "the host changed");
}

fn odd_execution_domains_are_refused(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    expect_sealed_for_all(&sandbox, "execution-domain", &[]);
}

fn other_entries_into_the_kernel_are_closed(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    expect_sealed_for_all(&sandbox, "foreign-entry", &[]);
}

fn devices_cannot_be_made_or_found(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    for (user, report) in expect_sealed_for_all(&sandbox, "devices", &[]) {
        assert_eq!(words(&report, "unexpected"), Vec::<String>::new(), "devices that {user} sees");
    }
    expect_sealed_for_all(&sandbox, "gpu", &[]);
}

fn kernel_settings_cannot_be_written(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let paths = [
        "/proc/sys/kernel/core_pattern",
        "/proc/sys/kernel/modprobe",
        "/proc/sys/kernel/panic",
        "/proc/sys/vm/overcommit_memory",
        "/proc/sys/vm/panic_on_oom",
        "/proc/sys/net/ipv4/ip_forward",
        "/proc/sys/user/max_user_namespaces",
    ];
    let before = contents(&paths);
    expect_sealed_for_all(&sandbox, "kernel-settings", &[]);
    assert_eq!(contents(&paths), before, "the host's settings changed");
}

fn kernel_addresses_are_hidden(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    expect_sealed_for_all(&sandbox, "kernel-pointers", &[]);
}

fn limits_cannot_be_raised_through_cgroups(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let limits = || -> BTreeMap<String, String> {
        let names = [
            "memory.limit_in_bytes",
            "memory.max",
            "pids.max",
            "cpu.cfs_quota_us",
            "cpu.max",
            "release_agent",
        ];
        let groups = belljar_testkit::leaks::cgroups_of(sandbox.id());
        let files = groups.iter().flat_map(|group| names.iter().map(move |name| group.join(name)));
        files
            .filter_map(|file| Some((file.display().to_string(), fs::read_to_string(&file).ok()?)))
            .collect()
    };
    let before = limits();
    expect_sealed_for_all(&sandbox, "cgroups", &[]);
    assert_eq!(limits(), before, "limits changed");
}

fn no_privilege_is_held_or_gained(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    for (user, report) in expect_sealed_for_all(&sandbox, "privileges", &[]) {
        assert_eq!(text(&report, "NoNewPrivs"), "1", "{user}");
        assert_eq!(text(&report, "Seccomp"), "2", "{user}");
        let sets = ["CapEff", "CapPrm", "CapInh", "CapBnd", "CapAmb"];
        for name in sets {
            let held = u64::from_str_radix(text(&report, name), 16).expect("a capability set");
            if user == "user" {
                assert_eq!(held, 0, "{name} of {user}");
            }
            for (capability, bit) in NEVER_HELD {
                assert_eq!(held & (1 << bit), 0, "{user} has {capability} in {name}");
            }
        }
    }
}

fn planted_privileged_programs_gain_nothing(belljar: &Installation) {
    let directory = belljar.probe_directory();
    let planted = directory.join("planted");
    fs::copy(directory.join("belljar-probe"), &planted).expect("our own file");
    fs::set_permissions(&planted, fs::Permissions::from_mode(0o6755)).expect("our own file");
    let sandbox = belljar.create(&[]);
    let report = probe(&sandbox, "planted", &["/probe/planted"]);
    expect_sealed(&report, "a set-user-id program of the host");
    assert_eq!(report.number("mode").map(|mode| mode & 0o7777), Some(0o6755), "{report}");
}

fn terminals_take_no_injected_input(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    expect_sealed_for_all(&sandbox, "terminal", &[]);
}

fn unusual_sockets_are_refused(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    expect_sealed_for_all(&sandbox, "sockets", &[]);
}

fn landlock_is_the_second_wall(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let report = probe(&sandbox, "landlock", &[]);
    // The host's own kernel decides: where it has Landlock, the workload must be held by it.
    let modules = fs::read_to_string("/sys/kernel/security/lsm").unwrap_or_default();
    let here = modules.split(',').any(|module| module.trim() == "landlock");
    if here || report.number("version").is_some_and(|version| version > 0) {
        expect_sealed(&report, "Landlock");
    }
}

fn no_descriptor_is_inherited(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    for (user, report) in expect_sealed_for_all(&sandbox, "descriptors", &[]) {
        assert_eq!(words(&report, "inherited"), Vec::<String>::new(), "descriptors of {user}");
    }
}
