//! Files, secrets and network: what a sandbox sees of its host.

#![forbid(unsafe_code)]

mod common;

use std::fs;
use std::net::TcpListener;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::path::Path;

use belljar_testkit::{Installation, Mode, matrix};
use common::{expect_sealed, expect_sealed_for_all, probe, words};

matrix! {
    everywhere only_the_writable_places_are_writable,
    walls secrets_of_the_host_are_absent,
    walls the_host_cannot_be_reached_over_loopback,
    walls a_sandbox_sees_nothing_of_its_neighbour,
    everywhere the_agent_is_nobody_on_the_host,
    ranges_of_neighbours_are_disjoint,
    the_state_directory_is_private,
    a_command_keeps_the_hosts_environment_out,
}

fn only_the_writable_places_are_writable(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    expect_sealed_for_all(&sandbox, "writes", &["/probe"]);
    for place in ["/", "/usr", "/usr/bin", "/usr/local/bin", "/etc", "/opt", "/var", "/home"] {
        let planted = Path::new(place).join("belljar-probe-was-here");
        assert!(!planted.exists(), "{} is on the host", planted.display());
    }
}

fn secrets_of_the_host_are_absent(belljar: &Installation) {
    let secret = belljar.work().join("secret");
    fs::write(&secret, "a secret of the host").expect("our own file");
    let home = belljar.make_directory("home");
    fs::write(home.join("key"), "a secret of the user").expect("our own file");
    let (state, home) = (belljar.state(), home.join("key"));
    let planted: Vec<String> =
        [&secret, &state, &home].iter().map(|path| path.display().to_string()).collect();
    let planted: Vec<&str> = planted.iter().map(String::as_str).collect();
    let sandbox = belljar.create(&[]);
    for (user, report) in expect_sealed_for_all(&sandbox, "secrets", &planted) {
        let environment = words(&report, "environment");
        let ours = environment.iter().find(|name| name.starts_with("BELLJAR_"));
        assert_eq!(ours, None, "{user} sees a variable of the host: {environment:?}");
    }
}

fn the_host_cannot_be_reached_over_loopback(belljar: &Installation) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.set_nonblocking(true).expect("our own socket");
    let port = listener.local_addr().expect("bound above").port().to_string();
    let name = format!("belljar-test-{}-{}", std::process::id(), belljar.mode());
    let address = SocketAddr::from_abstract_name(&name).expect("a short name");
    let local = UnixListener::bind_addr(&address).expect("a name of our own");
    local.set_nonblocking(true).expect("our own socket");

    let sandbox = belljar.create(&[]);
    for (user, report) in expect_sealed_for_all(&sandbox, "network", &[&port, &name]) {
        assert_eq!(words(&report, "interfaces"), ["lo"], "interfaces of {user}");
        assert_eq!(words(&report, "routes"), Vec::<String>::new(), "routes of {user}");
        let own: &[&str] = if belljar.mode().is_engine() { &["@belljar-agent"] } else { &[] };
        let mut sockets = words(&report, "abstract_sockets");
        sockets.dedup();
        assert_eq!(sockets, own, "{user}");
    }
    assert!(listener.accept().is_err(), "somebody connected to the host's port");
    assert!(local.accept().is_err(), "somebody connected to the host's abstract socket");
}

fn a_sandbox_sees_nothing_of_its_neighbour(belljar: &Installation) {
    let (one, other) = (belljar.create(&[]), belljar.create(&[]));
    one.exec(["sh", "-c", "echo secret > /tmp/mark; echo secret > /dev/shm/mark"]).expect_success();
    one.exec(["sh", "-c", "echo secret > /workspace/mark; echo secret > /home/user/mark"])
        .expect_success();
    for place in ["/tmp/mark", "/dev/shm/mark", "/workspace/mark", "/home/user/mark"] {
        one.exec(["cat", place]).expect_success();
        assert_ne!(other.exec(["cat", place]).code(), 0, "{place} is seen by the neighbour");
    }
    let mut held = one.start_with(&[], [common::PROBE, "stubborn"]);
    held.line();
    let census = probe(&other, "census", &[]);
    // The agent and the probe itself, and at most a supervisor between them.
    assert!(common::number(&census, "processes") <= 3, "{census}");
    one.destroy().expect_success();
    let _ = held.finish();
    if belljar.mode().runtime().is_some() {
        return; // the process that the host knows is the runtime's, outside
    }
    for name in ["mnt", "pid", "net", "ipc", "uts", "user"] {
        if name == "user" && belljar.mode().is_engine() {
            continue; // an engine gives its containers the host's users unless it is set up otherwise
        }
        let namespace = |process: u32| fs::read_link(format!("/proc/{process}/ns/{name}"));
        let theirs = namespace(other.agent().0).expect("the agent runs");
        assert_ne!(theirs, namespace(std::process::id()).expect("this runs"), "{name}");
    }
}

fn the_agent_is_nobody_on_the_host(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let (process, _) = sandbox.agent();
    let status = fs::read_to_string(format!("/proc/{process}/status")).expect("the agent runs");
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("no {name} in {status}")).trim().to_owned()
    };
    let uids = field("Uid");
    let uids: Vec<u32> = uids.split_whitespace().filter_map(|id| id.parse().ok()).collect();
    match belljar.mode() {
        // A range of its own: no account of the host has these ids.
        Mode::Root | Mode::Runc | Mode::Runsc => {
            assert!(uids.iter().all(|uid| *uid >= 65_536), "{uids:?}")
        }
        Mode::Rootless | Mode::Docker | Mode::Podman => assert!(!uids.contains(&0), "{uids:?}"),
    }
    assert_eq!(field("NoNewPrivs"), "1");
    // Its files in /proc belong to root only while it is not dumpable.
    let dumpable = fs::metadata(format!("/proc/{process}/mem")).map(|found| {
        use std::os::unix::fs::MetadataExt;
        found.uid() == uids[0]
    });
    assert!(!dumpable.expect("the agent runs"), "the agent is dumpable");
}

fn ranges_of_neighbours_are_disjoint(belljar: &Installation) {
    if belljar.mode() == Mode::Rootless {
        // An ordinary user has one range at most; files are kept apart by mounts.
        return;
    }
    let (one, other) = (belljar.create(&[]), belljar.create(&[]));
    let range = |process: u32| {
        let map = fs::read_to_string(format!("/proc/{process}/uid_map")).expect("the agent runs");
        let numbers: Vec<u64> =
            map.split_whitespace().filter_map(|word| word.parse().ok()).collect();
        let outside = numbers.chunks(3).filter_map(|line| Some((*line.get(1)?, *line.get(2)?)));
        outside.map(|(first, count)| first..first + count).collect::<Vec<_>>()
    };
    let (ours, theirs) = (range(one.agent().0), range(other.agent().0));
    for a in &ours {
        assert!(!a.contains(&0), "root of the host is mapped: {ours:?}");
        for b in &theirs {
            assert!(a.end <= b.start || b.end <= a.start, "{ours:?} and {theirs:?} overlap");
        }
    }
}

fn the_state_directory_is_private(belljar: &Installation) {
    use std::os::unix::fs::MetadataExt;
    let sandbox = belljar.create(&[]);
    let mode = fs::metadata(belljar.state()).expect("the state directory").mode();
    let inner = belljar.state().join("run/sandboxes").join(sandbox.id());
    let inner = fs::metadata(inner).expect("the sandbox's directory").mode();
    assert!(mode & 0o077 == 0 || inner & 0o077 == 0, "state {mode:o}, sandbox {inner:o}");
}

fn a_command_keeps_the_hosts_environment_out(belljar: &Installation) {
    let sandbox = belljar.create(&[]);
    let environment = sandbox.exec(["env"]).expect_success().text();
    assert!(!environment.contains("canary"), "{environment}");
    let report = probe(&sandbox, "arguments", &[]);
    assert!(words(&report, "environment").iter().all(|name| name != "BELLJAR_TEST_SECRET"));
    let report = probe(&sandbox, "descriptors", &[]);
    expect_sealed(&report, "descriptors");
}
