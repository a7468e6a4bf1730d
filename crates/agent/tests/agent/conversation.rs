//! Hello, versions, and everything that is not a proper frame.

use belljar_protocol::MAX_FRAME;
use belljar_protocol::v1::{
    Acknowledge, Cancel, Configured, Data, Hello, Input, Kill, Lease, List, Ping, Pong, ReadFile,
    Resize, Start, Stat, Terminal, Watch, Welcome, frame::Body,
};

use crate::host::{Agent, argv, configuration};

#[test]
fn greets_a_host_that_speaks_a_known_version() {
    let agent = Agent::start();
    let mut host = agent.connect_raw();
    host.send(0, Body::Hello(Hello { oldest_version: 1, newest_version: 99 }));
    let Some((0, Body::Welcome(Welcome { version, max_frame, configured, .. }))) = host.receive()
    else {
        panic!("no welcome")
    };
    assert_eq!((version, max_frame as usize, configured), (1, MAX_FRAME, false));
    assert_eq!(host.ask(Body::Ping(Ping {})), Body::Pong(Pong {}));
}

#[test]
fn hangs_up_on_whoever_does_not_greet() {
    let agent = Agent::start();
    for (body, code) in [
        (Body::Hello(Hello { oldest_version: 2, newest_version: 3 }), "version-unsupported"),
        (Body::Ping(Ping {}), "hello-expected"),
        (Body::Configure(configuration()), "hello-expected"),
    ] {
        let mut host = agent.connect_raw();
        host.send(0, body);
        assert!(
            matches!(host.receive(), Some((0, Body::Failure(failure))) if failure.code == code)
        );
        assert_eq!(host.receive(), None);
    }
}

#[test]
fn takes_requests_written_at_once() {
    let agent = Agent::start();
    let mut host = agent.connect_raw();
    host.send(0, Body::Hello(Hello { oldest_version: 1, newest_version: 1 }));
    host.send(1, Body::Configure(configuration()));
    host.send(2, Body::Start(argv(&["echo", "at once"])));
    assert!(matches!(host.receive_on(0), Body::Welcome(_)));
    assert!(matches!(host.receive_on(1), Body::Configured(_)));
    assert!(matches!(host.receive_on(2), Body::Started(_)));
    assert_eq!(host.finish(2).out(), "at once\n");
}

#[test]
fn is_configured_once() {
    let agent = Agent::start();
    let mut host = agent.connect();
    assert_eq!(host.fail(&argv(&["true"])).code, "not-configured");
    let stat = Body::Stat(Stat { path: b"/".to_vec(), ..Stat::default() });
    assert_eq!(host.ask_failing(stat).code, "not-configured");
    let answer = host.ask(Body::Configure(configuration()));
    assert_eq!(answer, Body::Configured(Configured::default()));
    assert_eq!(host.ask_failing(Body::Configure(configuration())).code, "already-configured");
    let mut second = agent.connect_raw();
    second.send(0, Body::Hello(Hello { oldest_version: 1, newest_version: 1 }));
    assert!(matches!(second.receive(), Some((0, Body::Welcome(welcome))) if welcome.configured));
}

#[test]
fn a_refused_configuration_leaves_nothing_behind() {
    let agent = Agent::start();
    let mut host = agent.connect();
    let mut broken = configuration();
    broken.seccomp = vec![vec![1, 2, 3]];
    assert_eq!(host.ask_failing(Body::Configure(broken)).code, "invalid-argument");
    let mut without_cgroup = configuration();
    without_cgroup.tree_kill = 0;
    let failure = host.ask_failing(Body::Configure(without_cgroup));
    assert_eq!(failure.code, "tree-kill-unavailable");
    assert!(matches!(host.ask(Body::Configure(configuration())), Body::Configured(_)));
}

#[test]
fn nonsense_ends_the_connection_but_not_the_agent() {
    let agent = Agent::start();
    let too_large = (MAX_FRAME as u32 + 1).to_le_bytes().to_vec();
    for bytes in [vec![2, 0, 0, 0, 0xff, 0xff], too_large, vec![0xff; 64]] {
        let mut host = agent.connect();
        host.send_bytes(&bytes);
        let Some((0, Body::Failure(failure))) = host.receive() else { panic!("no failure") };
        assert_eq!(failure.code, "malformed-frame");
        assert_eq!(host.receive(), None);
    }
    assert_eq!(agent.connect().ask(Body::Ping(Ping {})), Body::Pong(Pong {}));
}

#[test]
fn an_unknown_request_is_refused_on_its_stream() {
    let agent = Agent::start();
    let mut host = agent.connect();
    // Stream 7, field 1000 with an empty message: a request of some later version.
    host.send_bytes(&[5, 0, 0, 0, 0x08, 7, 0xc2, 0x3e, 0]);
    assert!(
        matches!(host.receive_on(7), Body::Failure(failure) if failure.code == "unknown-request")
    );
    let failure = host.ask_failing(Body::Pong(Pong {}));
    assert_eq!(failure.code, "invalid-argument");
}

#[test]
fn streams_have_numbers_of_their_own() {
    let (_agent, mut host) = Agent::configured();
    host.send(0, Body::Start(argv(&["true"])));
    assert!(
        matches!(host.receive_on(0), Body::Failure(failure) if failure.code == "invalid-argument")
    );
    let (stream, _) = host.start(&argv(&["sleep", "1000"]));
    host.send(stream, Body::Start(Start { process: "other".into(), ..argv(&["true"]) }));
    let Body::Failure(failure) = host.receive_on(stream) else { panic!("not refused") };
    assert_eq!(failure.code, "stream-in-use");
}

#[test]
fn extreme_numbers_are_only_numbers() {
    let (_agent, mut host) = Agent::configured();
    let start = Start {
        timeout_ms: u64::MAX,
        grace_ms: u32::MAX,
        terminal: Some(Terminal { rows: u32::MAX, columns: u32::MAX }),
        ..argv(&["sleep", "1000"])
    };
    let (stream, _) = host.start(&start);
    let process = start.process.clone();
    host.send(stream, Body::Acknowledge(Acknowledge { channel: i32::MIN, offset: u64::MAX }));
    host.send(stream, Body::Input(Input { data: vec![], close: true }));
    // Streams that nobody has opened.
    host.send(u64::MAX, Body::Acknowledge(Acknowledge { channel: 7, offset: 1 }));
    host.send(u64::MAX, Body::Input(Input { data: vec![1], close: true }));
    host.send(u64::MAX, Body::Data(Data { data: vec![1], end: false }));
    let path = b"/proc/self/status".to_vec();
    for (body, code) in [
        (
            Body::Kill(Kill { process: process.clone(), signal: i32::MIN, scope: 99 }),
            "invalid-argument",
        ),
        (Body::Start(Start { process: "x".repeat(9999), ..argv(&["true"]) }), "invalid-argument"),
        (Body::Start(Start { process: "x".into(), ..Start::default() }), "invalid-argument"),
        (
            Body::Cancel(Cancel { process: "nobody".into(), grace_ms: u32::MAX }),
            "process-not-found",
        ),
        (
            Body::ReadFile(ReadFile {
                path: path.clone(),
                offset: u64::MAX,
                length: u64::MAX,
                root: 9,
            }),
            "invalid-argument",
        ),
        (Body::Stat(Stat { path: b"a\0b".to_vec(), follow: true, root: -1 }), "invalid-argument"),
        (Body::Stat(Stat { path: vec![b'/'; 5000], follow: true, root: 0 }), "name-too-long"),
        (Body::Watch(Watch { path: vec![], recursive: true }), "not-found"),
        (
            Body::List(List { path: path.clone(), depth: u32::MAX, ..List::default() }),
            "not-a-directory",
        ),
    ] {
        let failure = host.ask_failing(body.clone());
        assert_eq!(failure.code, code, "{body:?}");
    }
    let list = List {
        path: b"/dev".to_vec(),
        depth: u32::MAX,
        limit: u32::MAX,
        after: vec![0xff; 3000],
        root: i32::MAX,
    };
    assert!(matches!(host.ask(Body::List(list)), Body::Entries(_)));
    let resize = Resize { process: process.clone(), rows: u32::MAX, columns: 0 };
    assert!(matches!(host.ask(Body::Resize(resize)), Body::Done(_)));
    let lease = Lease { idle_ms: u64::MAX, hard_ms: u64::MAX };
    assert!(matches!(host.ask(Body::Lease(lease)), Body::Done(_)));
    let cancel = Cancel { process: process.clone(), grace_ms: u32::MAX };
    let answer = host.request(Body::Cancel(cancel));
    assert!(matches!(host.receive_on(answer), Body::Done(_)));
    assert!(matches!(host.receive_on(stream), Body::Exited(exited) if exited.cancelled));
}
