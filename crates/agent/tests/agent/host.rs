//! A host for tests: starts an agent as an ordinary child, speaks to it, never waits for ever.

use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use belljar_protocol::v1::{
    Acknowledge, Argv, Channel, Configure, Exited, Failure, Frame, Hello, Start, Terminal,
    TreeKill, User, frame::Body, start,
};
use belljar_protocol::{Decoder, encode};
use rustix::process::Signal;

/// Longer than anything here takes on a busy machine; a test that reaches it has found a hang.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const AGENT: &str = env!("CARGO_BIN_EXE_belljar-agent");

/// A running agent with a directory of its own.
pub(crate) struct Agent {
    pub(crate) child: Child,
    pub(crate) directory: PathBuf,
    /// What ends it: its own leave-taking, or the end of whoever it was started by.
    stop: Signal,
}

/// One connection to it.
pub(crate) struct Host {
    socket: UnixStream,
    decoder: Decoder,
    last_stream: u64,
}

/// What a process wrote and how it ended.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: Vec<u8>,
    pub(crate) exited: Exited,
}

impl Agent {
    pub(crate) fn start() -> Self {
        Self::start_by(Signal::TERM, |listen| {
            let mut command = Command::new(AGENT);
            command.arg0("belljar-agent").arg(listen);
            command
        })
    }

    /// Starts an agent by a command that is made from its `listen` argument.
    pub(crate) fn start_by(stop: Signal, command: impl FnOnce(String) -> Command) -> Self {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let name = format!("belljar-agent-test-{}-{number}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        let listener = UnixListener::bind(directory.join("socket")).unwrap();
        let inherited = rustix::io::fcntl_dupfd_cloexec(&listener, 50).unwrap();
        rustix::io::fcntl_setfd(&inherited, rustix::io::FdFlags::empty()).unwrap();
        let mut command = command(format!("listen={}", inherited.as_raw_fd()));
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        Self { child, directory, stop }
    }

    /// An agent that has been configured by `configuration`, and a connection to it.
    pub(crate) fn configured() -> (Self, Host) {
        Self::configured_with(configuration())
    }

    pub(crate) fn configured_with(configure: Configure) -> (Self, Host) {
        let agent = Self::start();
        let mut host = agent.connect();
        let stream = host.request(Body::Configure(configure));
        match host.receive_on(stream) {
            Body::Configured(_) => (agent, host),
            other => panic!("not configured: {other:?}"),
        }
    }

    /// A connection that has been greeted.
    pub(crate) fn connect(&self) -> Host {
        let mut host = self.connect_raw();
        host.send(0, Body::Hello(Hello { oldest_version: 1, newest_version: 1 }));
        assert!(matches!(host.receive(), Some((0, Body::Welcome(_)))));
        host
    }

    pub(crate) fn connect_raw(&self) -> Host {
        let socket = UnixStream::connect(self.directory.join("socket")).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket.set_write_timeout(Some(PATIENCE)).unwrap();
        Host { socket, decoder: Decoder::new(), last_stream: 0 }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, self.stop);
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// What most tests want: no walls, the caller's own user, a small window.
pub(crate) fn configuration() -> Configure {
    Configure {
        user: Some(User {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            ..User::default()
        }),
        environment: [("PATH".to_owned(), "/usr/bin:/bin".to_owned())].into(),
        tree_kill: TreeKill::Subreaper.into(),
        window: WINDOW,
        single_user: true,
        ..Configure::default()
    }
}

pub(crate) const WINDOW: u32 = 128 * 1024;

pub(crate) fn argv(arguments: &[&str]) -> Start {
    let args = arguments.iter().map(|argument| argument.as_bytes().to_vec()).collect();
    start(start::Program::Argv(Argv { args }))
}

pub(crate) fn shell(line: &str) -> Start {
    start(start::Program::ShellLine(line.into()))
}

pub(crate) fn terminal(line: &str) -> Start {
    Start { terminal: Some(Terminal { rows: 30, columns: 100 }), ..shell(line) }
}

fn start(program: start::Program) -> Start {
    static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
    let number = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    Start { process: format!("p{number}"), program: Some(program), ..Start::default() }
}

impl Host {
    pub(crate) fn send(&mut self, stream: u64, body: Body) {
        let mut bytes = Vec::new();
        encode(&Frame { stream, body: Some(body) }, &mut bytes).unwrap();
        self.send_bytes(&bytes);
    }

    pub(crate) fn send_bytes(&mut self, bytes: &[u8]) {
        // An agent that has hung up is noticed when its answer is read.
        let _ = self.socket.write_all(bytes);
    }

    /// Opens a stream.
    pub(crate) fn request(&mut self, body: Body) -> u64 {
        self.last_stream += 1;
        self.send(self.last_stream, body);
        self.last_stream
    }

    /// A request that has one answer.
    pub(crate) fn ask(&mut self, body: Body) -> Body {
        let stream = self.request(body);
        self.receive_on(stream)
    }

    /// A request that fails.
    pub(crate) fn ask_failing(&mut self, body: Body) -> Failure {
        match self.ask(body) {
            Body::Failure(failure) => failure,
            other => panic!("did not fail: {other:?}"),
        }
    }

    /// The next frame; `None` when the agent has closed the connection.
    pub(crate) fn receive(&mut self) -> Option<(u64, Body)> {
        loop {
            if let Some(frame) = self.decoder.next().unwrap() {
                return Some((frame.stream, frame.body.expect("known")));
            }
            let mut buffer = [0; 65536];
            match self.socket.read(&mut buffer) {
                Ok(0) => return None,
                Ok(size) => self.decoder.push(&buffer[..size]),
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return None,
                Err(error) => panic!("no answer: {error}"),
            }
        }
    }

    /// All that one read brings, which nothing may be left of.
    pub(crate) fn receive_at_once(&mut self) -> Vec<Body> {
        assert!(self.decoder.next().unwrap().is_none(), "something came before");
        let mut bodies = vec![self.receive().expect("the agent hung up").1];
        while let Some(frame) = self.decoder.next().unwrap() {
            bodies.push(frame.body.expect("known"));
        }
        bodies
    }

    /// The next frame, which must be of this stream.
    pub(crate) fn receive_on(&mut self, stream: u64) -> Body {
        let (of, body) = self.receive().expect("the agent hung up");
        assert_eq!(of, stream, "{body:?}");
        body
    }

    pub(crate) fn acknowledge(&mut self, stream: u64, channel: Channel, offset: u64) {
        self.send(stream, Body::Acknowledge(Acknowledge { channel: channel.into(), offset }));
    }

    /// Starts a process; panics if it does not start.
    pub(crate) fn start(&mut self, start: &Start) -> (u64, u32) {
        let stream = self.request(Body::Start(start.clone()));
        match self.receive_on(stream) {
            Body::Started(started) => (stream, started.pid),
            other => panic!("not started: {other:?}"),
        }
    }

    /// Takes everything a process writes until its stream ends, acknowledging as it goes.
    pub(crate) fn finish(&mut self, stream: u64) -> Run {
        self.finish_after(stream, Run::default())
    }

    pub(crate) fn finish_after(&mut self, stream: u64, mut run: Run) -> Run {
        let mut ended = (run.exited != Exited::default()).then(|| run.exited.clone());
        loop {
            match self.receive_on(stream) {
                Body::Output(output) => {
                    let channel = output.channel();
                    let kept = match channel {
                        Channel::Stdout => &mut run.stdout,
                        _ => &mut run.stderr,
                    };
                    assert_eq!(output.offset, kept.len() as u64, "output is in order");
                    kept.extend_from_slice(&output.data);
                    let offset = kept.len() as u64;
                    self.acknowledge(stream, channel, offset);
                }
                Body::Exited(exited) => assert!(ended.replace(exited).is_none()),
                Body::Acknowledge(_) => {}
                Body::Closed(_) => {
                    run.exited = ended.expect("Exited comes before Closed");
                    assert!(run.exited.stdout_end <= run.stdout.len() as u64);
                    assert!(run.exited.stderr_end <= run.stderr.len() as u64);
                    return run;
                }
                other => panic!("unexpected: {other:?}"),
            }
        }
    }

    /// Takes output until it contains a text; everything so far.
    pub(crate) fn read_until(&mut self, stream: u64, text: &str) -> String {
        let mut all = Vec::new();
        while !String::from_utf8_lossy(&all).contains(text) {
            match self.receive_on(stream) {
                Body::Output(output) => {
                    let end = output.offset + output.data.len() as u64;
                    self.acknowledge(stream, output.channel(), end);
                    all.extend(output.data);
                }
                Body::Acknowledge(_) => {}
                other => panic!("unexpected: {other:?}"),
            }
        }
        String::from_utf8_lossy(&all).into_owned()
    }

    pub(crate) fn run(&mut self, start: &Start) -> Run {
        let (stream, _) = self.start(start);
        self.finish(stream)
    }

    /// Starts something that cannot be started.
    pub(crate) fn fail(&mut self, start: &Start) -> Failure {
        self.ask_failing(Body::Start(start.clone()))
    }
}

impl Run {
    pub(crate) fn out(&self) -> &str {
        std::str::from_utf8(&self.stdout).unwrap()
    }

    pub(crate) fn err(&self) -> &str {
        std::str::from_utf8(&self.stderr).unwrap()
    }

    pub(crate) fn code(&self) -> i32 {
        match self.exited.status {
            Some(belljar_protocol::v1::exited::Status::Code(code)) => code,
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn signal(&self) -> i32 {
        match self.exited.status {
            Some(belljar_protocol::v1::exited::Status::Signal(signal)) => signal,
            other => panic!("{other:?}"),
        }
    }
}

/// Waits until something is so.
pub(crate) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let end = std::time::Instant::now() + PATIENCE;
    while !holds() {
        assert!(std::time::Instant::now() < end, "never: {what}");
        std::thread::yield_now();
    }
}

/// Whether a process exists and is not just a zombie.
pub(crate) fn is_alive(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat"))
        .is_ok_and(|stat| !stat.rsplit(')').next().unwrap().starts_with(" Z"))
}

/// The number that a process wrote to a file, once it is there.
pub(crate) fn read_pid(path: &Path) -> u32 {
    let read = || std::fs::read_to_string(path).ok()?.strip_suffix('\n')?.parse().ok();
    eventually("a pid file", || read().is_some());
    read().unwrap()
}
