//! The agent as PID 1, with everything that needs root: another user, capabilities, cgroups, Landlock, seccomp.

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;

use belljar_protocol::v1::{
    Cancel, Configure, Kill, LandlockRule, ResourceLimit, Start, Stat, TreeKill, User, WriteFile,
    frame::Body, kill::Scope, landlock_rule::Access,
};
use rustix::fs::{Mode, OFlags};

use crate::host::{AGENT, Agent, Host, Run, argv, configuration, eventually, shell, terminal};

/// A cgroup v2 directory of the test's own.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Option<Self> {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let mount = mounts.lines().find(|line| line.split(' ').nth(2) == Some("cgroup2"))?;
        let name = format!("belljar-agent-test-{}-{number}", std::process::id());
        let path = PathBuf::from(mount.split(' ').nth(1)?).join(name);
        std::fs::create_dir(&path).ok()?;
        Some(Self(path))
    }

    fn open(&self) -> OwnedFd {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.0, flags, Mode::empty()).unwrap();
        let directory = rustix::io::fcntl_dupfd_cloexec(&directory, 60).unwrap();
        rustix::io::fcntl_setfd(&directory, rustix::io::FdFlags::empty()).unwrap();
        directory
    }

    /// The cgroups below, one per process that was started.
    fn children(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.0).unwrap().map(|entry| entry.unwrap().path());
        entries.filter(|path| path.is_dir()).collect()
    }

    fn members(&self) -> usize {
        let count = |path: PathBuf| {
            std::fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default().lines().count()
        };
        self.children().into_iter().map(count).sum()
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // The agent's namespace ends a moment after the agent.
        eventually("the cgroup is empty", || {
            for child in self.children() {
                let _ = std::fs::remove_dir(child);
            }
            std::fs::remove_dir(&self.0).is_ok()
        });
    }
}

const UID: u32 = 1234;

/// An agent as PID 1 of its own namespace; nothing if this machine does not let us.
fn pid_one(configure: Configure) -> Option<(Cgroup, Agent, Host)> {
    let skip = |why: &str| eprintln!("skipped: {why}");
    if !rustix::process::geteuid().is_root() {
        skip("needs root");
        return None;
    }
    let Some(cgroup) = Cgroup::new() else {
        skip("needs a writable cgroup v2");
        return None;
    };
    let directory = cgroup.open();
    let agent = Agent::start_by(rustix::process::Signal::KILL, |listen| {
        let mut command = Command::new("unshare");
        command.args([
            "--pid",
            "--mount",
            "--uts",
            "--fork",
            "--kill-child",
            "--mount-proc",
            AGENT,
        ]);
        command.arg(listen).arg(format!("cgroup={}", directory.as_raw_fd()));
        command
    });
    std::fs::set_permissions(&agent.directory, PermissionsExt::from_mode(0o777)).unwrap();
    let mut host = agent.connect();
    match host.ask(Body::Configure(configure)) {
        Body::Configured(_) => Some((cgroup, agent, host)),
        other => panic!("not configured: {other:?}"),
    }
}

fn sealed() -> Configure {
    Configure {
        user: Some(user(UID)),
        single_user: false,
        tree_kill: TreeKill::Cgroup.into(),
        hostname: "sealed".into(),
        ..configuration()
    }
}

fn user(uid: u32) -> User {
    let home = b"/nowhere".to_vec();
    User { uid, gid: uid, name: format!("u{uid}"), home, groups: vec![7] }
}

#[test]
fn a_program_is_someone_else_without_any_power() {
    let Some((_cgroup, _agent, mut host)) = pid_one(sealed()) else { return };
    let run = host.run(&shell("id -u; id -g; id -G; echo $HOME $USER; uname -n; echo $PPID"));
    assert_eq!(run.out(), "1234\n1234\n1234 7\n/nowhere u1234\nsealed\n1\n");
    let caps = "grep -E '^Cap' /proc/self/status | tr -s '\\t ' ' '";
    let run = host.run(&shell(caps));
    for line in run.out().lines() {
        assert!(line.ends_with(" 0000000000000000"), "{line}");
    }
    // Nothing can be done to the agent.
    let run = host.run(&shell(
        "kill -9 1; cat /proc/1/environ; ls /proc/1/fd; cat /proc/1/mem; echo still here",
    ));
    assert_eq!(run.out(), "still here\n");
    let refused = run.err().lines().filter(|line| {
        line.contains("Permission denied") || line.contains("Operation not permitted")
    });
    assert_eq!(refused.count(), 4, "{}", run.err());
}

#[test]
fn root_keeps_only_what_was_named() {
    let chown = 1 << 0;
    let configure = Configure { root_capabilities: chown, ..sealed() };
    let Some((_cgroup, _agent, mut host)) = pid_one(configure) else { return };
    // What login programs do to the set that is inherited takes nothing from root.
    let start = Start {
        user: Some(user(0)),
        ..shell(
            "id -u; grep -E '^Cap(Prm|Eff|Bnd)' /proc/self/status; \
             setpriv --inh-caps=-all grep CapPrm /proc/self/status",
        )
    };
    let run = host.run(&start);
    assert!(run.out().starts_with("0\n"));
    let sets = |run: &Run| -> Vec<String> {
        run.out().lines().filter_map(|line| Some(line.split_once('\t')?.1.to_owned())).collect()
    };
    assert_eq!(sets(&run), ["0000000000000001"; 4]);
    // The twin: another user does not.
    let run = host.run(&shell("grep -E '^Cap(Prm|Eff|Bnd|Inh)' /proc/self/status"));
    assert_eq!(sets(&run), ["0000000000000000"; 4]);
}

#[test]
fn each_process_has_a_cgroup_that_dies_with_it() {
    let Some((cgroup, _agent, mut host)) = pid_one(sealed()) else { return };
    let start = Start {
        timeout_ms: 700,
        ..shell("setsid sh -c 'sleep 1000 & sleep 1000 &' > /dev/null 2>&1; sleep 1000")
    };
    let (stream, _) = host.start(&start);
    eventually("all are there", || cgroup.members() == 4 || cgroup.members() == 3);
    let run = host.finish(stream);
    assert!(run.exited.timed_out);
    assert_eq!(run.signal(), 9);
    eventually("all are gone", || cgroup.members() == 0);
    // Many short ones need only a few cgroups.
    for _ in 0..20 {
        assert_eq!(host.run(&argv(&["true"])).code(), 0);
    }
    assert!(cgroup.children().len() <= 5, "{:?}", cgroup.children());
    // One with a daemon keeps its own until the daemon is gone.
    let start = shell("setsid sleep 1000 > /dev/null 2>&1 &");
    assert_eq!(host.run(&start).code(), 0);
    assert_eq!(cgroup.members(), 1);
    let kill = Kill { process: start.process, signal: 9, scope: Scope::Tree.into() };
    assert!(matches!(host.ask(Body::Kill(kill)), Body::Done(_)));
    eventually("the daemon is gone", || cgroup.members() == 0);
}

/// A group of processes that cannot be killed as long as it exists: what the old freezer does to its members.
struct Frozen(PathBuf);

impl Frozen {
    fn new(pids: &[String]) -> Option<Self> {
        let mounts = std::fs::read_to_string("/proc/self/mounts").ok()?;
        let is_freezer = |line: &&str| {
            let mut fields = line.split(' ').skip(2);
            fields.next() == Some("cgroup")
                && fields.next().is_some_and(|options| options.split(',').any(|o| o == "freezer"))
        };
        let mount = mounts.lines().find(is_freezer)?.split(' ').nth(1)?;
        let path = PathBuf::from(mount).join(format!("belljar-test-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        let frozen = Self(path);
        for pid in pids {
            std::fs::write(frozen.0.join("cgroup.procs"), pid).unwrap();
        }
        let state = frozen.0.join("freezer.state");
        std::fs::write(&state, "FROZEN").unwrap();
        eventually("it is frozen", || std::fs::read_to_string(&state).unwrap() == "FROZEN\n");
        Some(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        std::fs::write(self.0.join("freezer.state"), "THAWED").unwrap();
        eventually("it is empty", || std::fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_process_that_cannot_be_killed_is_not_waited_for() {
    let Some((cgroup, _agent, mut host)) = pid_one(sealed()) else { return };
    let start = shell("echo up; exec sleep 1000");
    let (stream, _) = host.start(&start);
    host.read_until(stream, "up\n");
    let [own] = cgroup.children().try_into().unwrap();
    let members = std::fs::read_to_string(own.join("cgroup.procs")).unwrap();
    let members: Vec<String> = members.lines().map(String::from).collect();
    let Some(frozen) = Frozen::new(&members) else {
        return eprintln!("skipped: needs the freezer of cgroup v1");
    };
    let kill = Kill { process: start.process, signal: 9, scope: Scope::Tree.into() };
    assert!(matches!(host.ask(Body::Kill(kill)), Body::Done(_)));
    let Body::Exited(exited) = host.receive_on(stream) else { panic!("not the end") };
    assert_eq!(exited.status, Some(belljar_protocol::v1::exited::Status::Signal(9)));
    assert!(matches!(host.receive_on(stream), Body::Closed(_)));
    assert_eq!(cgroup.members(), 1);
    // Others go on, and it ends as soon as it can.
    assert_eq!(host.run(&argv(&["true"])).code(), 0);
    drop(frozen);
    eventually("it is gone", || cgroup.members() == 0);
}

#[test]
fn orphans_are_waited_for() {
    let Some((_cgroup, _agent, mut host)) = pid_one(sealed()) else { return };
    let line = "for i in 1 2 3 4 5 6 7 8 9; do (setsid true &); done; exec true";
    for _ in 0..20 {
        host.run(&shell(line));
    }
    // Whoever ended is gone from the table: only the agent, this shell and its tools are in it.
    let zombies = shell("sleep 0.05; cat /proc/[0-9]*/stat | grep -c ' Z '; true");
    eventually("no zombies", || host.run(&zombies).out() == "0\n");
}

#[test]
fn cancelling_reaches_someone_elses_process() {
    let Some((_cgroup, _agent, mut host)) = pid_one(sealed()) else { return };
    let start = shell("exec 2>&-; trap 'exit 9' TERM; echo up; while :; do sleep 0.01; done");
    let (stream, _) = host.start(&start);
    host.read_until(stream, "up\n");
    let cancel = Body::Cancel(Cancel { process: start.process, grace_ms: 60_000 });
    assert!(matches!(host.ask(cancel), Body::Done(_)));
    let Body::Exited(exited) = host.receive_on(stream) else { panic!("not the end") };
    assert_eq!(exited.status, Some(belljar_protocol::v1::exited::Status::Code(9)));
}

#[test]
fn a_terminal_belongs_to_its_user() {
    let Some((_cgroup, _agent, mut host)) = pid_one(sealed()) else { return };
    let (stream, _) = host.start(&terminal("echo by name > $(tty); stat -c %u $(tty)"));
    assert_eq!(host.finish(stream).out(), "by name\r\n1234\r\n");
}

#[test]
fn limits_are_set() {
    let limits = vec![
        ResourceLimit { resource: 4, soft: 0, hard: 0 },
        ResourceLimit { resource: 7, soft: 100, hard: 200 },
        ResourceLimit { resource: 1, soft: u64::MAX, hard: u64::MAX },
    ];
    let Some((_cgroup, _agent, mut host)) =
        pid_one(Configure { resource_limits: limits, ..sealed() })
    else {
        return;
    };
    let run = host.run(&shell("ulimit -c; ulimit -n; ulimit -H -n; cat /proc/self/oom_score_adj"));
    assert_eq!(run.out(), "0\n100\n200\n800\n");
}

#[test]
fn files_are_reached_as_the_user() {
    let Some((_cgroup, agent, mut host)) = pid_one(sealed()) else { return };
    std::fs::write(agent.path("secret"), b"x").unwrap();
    std::fs::set_permissions(agent.path("secret"), PermissionsExt::from_mode(0o600)).unwrap();
    let secret = agent.path("secret").to_str().unwrap().as_bytes().to_vec();
    let write = WriteFile { path: secret, ..WriteFile::default() };
    assert_eq!(host.ask_failing(Body::WriteFile(write)).code, "permission-denied");
    let own = agent.path("own").to_str().unwrap().as_bytes().to_vec();
    let stream =
        host.request(Body::WriteFile(WriteFile { path: own.clone(), ..WriteFile::default() }));
    host.send(stream, Body::Data(belljar_protocol::v1::Data { data: vec![1], end: true }));
    assert!(matches!(host.receive_on(stream), Body::Done(_)));
    let Body::Metadata(metadata) = host.ask(Body::Stat(Stat { path: own, ..Stat::default() }))
    else {
        panic!()
    };
    assert_eq!((metadata.uid, metadata.gid, metadata.mode), (UID, UID, 0o644));
}

#[test]
fn landlock_allows_what_rules_say() {
    let agent_directory = std::env::temp_dir();
    let rule =
        |path: &str, access: Access| LandlockRule { path: path.into(), access: access.into() };
    let landlock = vec![
        rule("/", Access::ReadExecute),
        rule(agent_directory.to_str().unwrap(), Access::ReadWrite),
        rule("/dev", Access::Devices),
        rule("/no/such/path", Access::ReadWrite),
    ];
    let configure =
        Configure { landlock, user: Some(user(0)), root_capabilities: 1 << 1, ..sealed() };
    let Some((_cgroup, agent, mut host)) = pid_one(configure) else { return };
    let run = host.run(&shell(&format!(
        "cd {}; mkdir a b && echo x > a/f && mv a/f b/f && cat b/f; echo y > /dev/null && echo device; \
         echo z > /var/tmp/belljar-landlock && echo outside",
        agent.directory.display()
    )));
    assert_eq!(run.out(), "x\ndevice\n", "{}", run.err());
    assert!(run.err().contains("Permission denied"));
    // File requests are behind the same wall.
    let write = |path: PathBuf| {
        let path = path.to_str().unwrap().as_bytes().to_vec();
        Body::WriteFile(WriteFile { path, ..WriteFile::default() })
    };
    let failure = host.ask_failing(write("/var/tmp/belljar-landlock".into()));
    assert_eq!(failure.code, "permission-denied");
}

#[test]
fn seccomp_filters_are_installed() {
    // if (nr == mkdir) return EPERM; return ALLOW;
    let mkdir = rustix_number("mkdir");
    let instruction = |code: u16, jump_true: u8, jump_false: u8, value: u32| {
        let mut bytes = code.to_ne_bytes().to_vec();
        bytes.extend([jump_true, jump_false]);
        bytes.extend(value.to_ne_bytes());
        bytes
    };
    let filter = [
        instruction(0x20, 0, 0, 0),
        instruction(0x15, 0, 1, mkdir),
        instruction(0x06, 0, 0, 0x0005_0001),
        instruction(0x06, 0, 0, 0x7fff_0000),
    ]
    .concat();
    let configure = Configure { seccomp: vec![filter.clone(), filter], ..sealed() };
    let Some((_cgroup, agent, mut host)) = pid_one(configure) else { return };
    let run = host.run(&shell(&format!(
        "cd {}; mkdir made || touch made-instead; grep Seccomp_filters /proc/self/status; ls",
        agent.directory.display()
    )));
    assert!(run.out().contains("Seccomp_filters:\t2\n"), "{}", run.out());
    assert!(run.out().contains("made-instead\n") && !run.out().contains("made\n"), "{}", run.out());
    let path = agent.path("made").to_str().unwrap().as_bytes().to_vec();
    let make = belljar_protocol::v1::MakeDirectory { path, ..Default::default() };
    // The worker's own call is another number of the same thing on some machines, so only the answer's kind counts.
    assert!(matches!(host.ask(Body::MakeDirectory(make)), Body::Failure(_) | Body::Done(_)));
}

/// The number of a system call on this machine.
fn rustix_number(name: &str) -> u32 {
    match (name, std::env::consts::ARCH) {
        ("mkdir", "x86_64") => 83,
        // Not there on newer machines; a number that nothing uses.
        _ => 9999,
    }
}
