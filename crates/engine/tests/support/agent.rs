//! An agent in this process: speaks the protocol, runs make-believe commands.
//!
//! Commands: `true`, `exit N`, `echo TEXT`, `warn TEXT` (standard error), `flood N` (bytes), `cat`, `hang` (until
//! killed), `stuck` (deaf to everything), `oom`, `forks` (runs into the process limit), `background` (ends, and a child
//! goes on writing), `env NAME`, `cut N` (writes N bytes, then the connection breaks, then N more).

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use belljar_backend::Counters;
use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{self, Channel, Frame, exited::Status};
use belljar_protocol::{Decoder, encode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc};

const WINDOW: usize = 256 << 10;

type Sender = mpsc::UnboundedSender<Frame>;

pub struct FakeAgent {
    /// The agent lives here, whichever runtime its hosts come from and go with.
    runtime: tokio::runtime::Handle,
    pub counters: Mutex<Counters>,
    /// The workspace layer: path to metadata and contents.
    pub layer: Mutex<BTreeMap<String, (v1::Metadata, Vec<u8>)>>,
    pub files: Mutex<BTreeMap<Vec<u8>, Vec<u8>>>,
    /// Never answers the greeting.
    pub mute: AtomicBool,
    /// The most bytes of output that were ever unacknowledged.
    pub most_unacknowledged: AtomicU64,
    /// The last one that was given after the configuration.
    pub lease: Mutex<Option<v1::Lease>>,
    /// Where calls of tools go.
    tools: Mutex<Option<Sender>>,
    configuration: Mutex<Option<v1::Configure>>,
    processes: Mutex<HashMap<String, Arc<FakeProcess>>>,
    died: Arc<Notify>,
    dead: AtomicBool,
}

#[derive(Default)]
struct FakeProcess {
    state: Mutex<ProcessState>,
    acknowledged: Notify,
    killed: Notify,
    input: Notify,
}

#[derive(Default)]
struct ProcessState {
    listener: Option<(Sender, u64)>,
    kept: [Vec<u8>; 2],
    base: [u64; 2],
    exited: Option<v1::Exited>,
    input: Vec<u8>,
    input_closed: bool,
    input_taken: u64,
    cancelled: bool,
}

impl FakeAgent {
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            runtime: tokio::runtime::Handle::current(),
            counters: Mutex::default(),
            layer: Mutex::default(),
            files: Mutex::default(),
            mute: AtomicBool::new(false),
            most_unacknowledged: AtomicU64::new(0),
            lease: Mutex::default(),
            tools: Mutex::default(),
            configuration: Mutex::default(),
            processes: Mutex::default(),
            died: Arc::default(),
            dead: AtomicBool::new(false),
        })
    }

    pub fn configuration(&self) -> v1::Configure {
        self.configuration.lock().unwrap().clone().expect("configured")
    }

    /// Calls a tool in the name of a process, if anybody answers; whether it is one of this sandbox is not asked.
    pub fn call_tool(&self, name: &str, process: &str) -> bool {
        let tools = self.tools.lock().unwrap();
        let Some(tools) = tools.as_ref() else { return false };
        let call = v1::ToolCall {
            call: 1,
            name: name.as_bytes().to_vec(),
            process: process.to_owned(),
            ..v1::ToolCall::default()
        };
        tools.send(Frame { stream: 0, body: Some(Body::ToolCall(call)) }).is_ok()
    }

    pub fn known_processes(&self) -> usize {
        self.processes.lock().unwrap().len()
    }

    pub fn die(&self) {
        self.dead.store(true, Ordering::Relaxed);
        self.died.notify_waiters();
    }

    /// Ends every process, whether or not a host listens.
    pub fn kill_processes(&self) {
        for process in self.processes.lock().unwrap().values() {
            process.killed.notify_one();
        }
    }

    /// Knows nothing of any process, as if they had never been sent.
    pub fn forget_processes(&self) {
        self.processes.lock().unwrap().clear();
    }

    /// Breaks every connection, as a restart of the host would.
    pub fn disconnect(&self) {
        self.died.notify_waiters();
    }

    pub fn connect(self: &Arc<Self>) -> UnixStream {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        let theirs = UnixStream::from_std(theirs).unwrap();
        let _inside = self.runtime.enter();
        let ours = UnixStream::from_std(ours).unwrap();
        let (sender, mut outgoing) = mpsc::unbounded_channel::<Frame>();
        let (mut read, mut write) = ours.into_split();
        let agent = Arc::clone(self);
        tokio::spawn(async move {
            let died = agent.died.clone();
            let ended = died.notified();
            let talk = async {
                let mut decoder = Decoder::new();
                let mut buffer = vec![0; 64 << 10];
                loop {
                    match read.read(&mut buffer).await {
                        Ok(0) | Err(_) => return,
                        Ok(count) => decoder.push(&buffer[..count]),
                    }
                    while let Some(frame) = decoder.next().unwrap() {
                        agent.take(frame, &sender);
                    }
                }
            };
            let speak = async {
                while let Some(frame) = outgoing.recv().await {
                    let mut bytes = Vec::new();
                    encode(&frame, &mut bytes).unwrap();
                    if write.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
            };
            tokio::select! {
                () = ended => {}
                () = talk => {}
                () = speak => {}
            }
        });
        theirs
    }

    fn take(self: &Arc<Self>, frame: Frame, sender: &Sender) {
        let stream = frame.stream;
        let reply = |body: Body| drop(sender.send(Frame { stream, body: Some(body) }));
        let done = || Body::Done(v1::Done { size: 0 });
        if self.mute.load(Ordering::Relaxed) {
            return;
        }
        match frame.body.unwrap() {
            Body::Hello(_) => reply(Body::Welcome(v1::Welcome {
                version: 1,
                max_frame: 256 << 10,
                agent_version: "fake".to_owned(),
                configured: self.configuration.lock().unwrap().is_some(),
            })),
            Body::Configure(configure) => {
                *self.configuration.lock().unwrap() = Some(configure);
                reply(Body::Configured(v1::Configured::default()));
            }
            Body::Start(start) => self.start(start, sender, stream),
            Body::Attach(attach) => match self.process(&attach.process) {
                Some(process) => process.attach(&attach, sender, stream),
                None => reply(failure("process-not-found", "", 0)),
            },
            Body::Acknowledge(acknowledge) => self.acknowledge(sender, stream, &acknowledge),
            Body::Input(input) => self.input(sender, stream, input),
            Body::Kill(kill) => match self.process(&kill.process) {
                Some(process) => {
                    process.killed.notify_one();
                    reply(done());
                }
                None => reply(failure("process-not-found", "", 0)),
            },
            Body::Cancel(cancel) => match self.process(&cancel.process) {
                Some(process) => {
                    process.state.lock().unwrap().cancelled = true;
                    process.killed.notify_one();
                    reply(done());
                }
                None => reply(failure("process-not-found", "", 0)),
            },
            Body::Forget(forget) => {
                self.processes.lock().unwrap().remove(&forget.process);
                if !forget.silent {
                    reply(done());
                }
            }
            Body::ListProcesses(_) => {
                let processes = self.processes.lock().unwrap();
                let list = processes.iter().map(|(name, process)| {
                    let exited = process.state.lock().unwrap().exited.clone();
                    v1::ProcessState {
                        process: name.clone(),
                        running: exited.is_none(),
                        exited,
                        ..v1::ProcessState::default()
                    }
                });
                reply(Body::ProcessList(v1::ProcessList { processes: list.collect() }));
            }
            Body::List(list) => reply(self.list(&list)),
            Body::ReadFile(read) => {
                let content = if read.root == v1::Root::WorkspaceLayer as i32 {
                    let path = String::from_utf8(read.path.clone()).unwrap();
                    self.layer.lock().unwrap().get(&path).map(|(_, content)| content.clone())
                } else {
                    self.files.lock().unwrap().get(&read.path).cloned()
                };
                match content {
                    None => reply(failure("not-found", "open", 2)),
                    Some(content) => {
                        let end = match read.length {
                            0 => content.len(),
                            length => content.len().min(length as usize),
                        };
                        for piece in content[..end].chunks(64 << 10) {
                            reply(Body::Data(v1::Data { data: piece.to_vec(), end: false }));
                        }
                        reply(Body::Data(v1::Data { data: Vec::new(), end: true }));
                        reply(Body::Done(v1::Done { size: end as u64 }));
                    }
                }
            }
            Body::WriteFile(write) if write.path == b"/full" => {
                self.files.lock().unwrap().remove(&b"\0current"[..]);
                reply(failure("no-space", "write", 28));
            }
            Body::WriteFile(write) => {
                // One at a time is all the tests do.
                let mut files = self.files.lock().unwrap();
                files.insert(write.path.clone(), Vec::new());
                files.insert(b"\0current".to_vec(), write.path);
            }
            Body::Data(data) => {
                let mut files = self.files.lock().unwrap();
                let Some(path) = files.get(&b"\0current"[..]).cloned() else { return };
                let content = files.get_mut(&path).unwrap();
                content.extend_from_slice(&data.data);
                let size = content.len() as u64;
                reply(Body::Acknowledge(v1::Acknowledge { channel: 0, offset: size }));
                if data.end {
                    reply(Body::Done(v1::Done { size }));
                }
            }
            Body::Lease(lease) => {
                *self.lease.lock().unwrap() = Some(lease);
                reply(done());
            }
            Body::ServeTools(_) => *self.tools.lock().unwrap() = Some(sender.clone()),
            Body::ToolAnswer(_) => {}
            Body::Ping(_) => reply(Body::Pong(v1::Pong {})),
            other => panic!("not for this agent: {other:?}"),
        }
    }

    fn process(&self, name: &str) -> Option<Arc<FakeProcess>> {
        self.processes.lock().unwrap().get(name).cloned()
    }

    fn by_stream(&self, sender: &Sender, stream: u64) -> Option<Arc<FakeProcess>> {
        let processes = self.processes.lock().unwrap();
        let listens = |process: &&Arc<FakeProcess>| {
            let state = process.state.lock().unwrap();
            state.listener.as_ref().is_some_and(|(s, n)| *n == stream && s.same_channel(sender))
        };
        processes.values().find(listens).cloned()
    }

    fn acknowledge(&self, sender: &Sender, stream: u64, acknowledge: &v1::Acknowledge) {
        let Some(process) = self.by_stream(sender, stream) else { return };
        let mut state = process.state.lock().unwrap();
        let channel = acknowledge.channel as usize;
        let count = acknowledge.offset.saturating_sub(state.base[channel]) as usize;
        state.kept[channel].drain(..count);
        state.base[channel] = acknowledge.offset;
        process.acknowledged.notify_one();
    }

    fn input(&self, sender: &Sender, stream: u64, input: v1::Input) {
        let Some(process) = self.by_stream(sender, stream) else { return };
        let mut state = process.state.lock().unwrap();
        state.input.extend_from_slice(&input.data);
        assert!(state.input.len() <= WINDOW, "the host sent more than the window");
        state.input_closed |= input.close;
        process.input.notify_one();
    }

    fn list(&self, list: &v1::List) -> Body {
        if list.root == v1::Root::WorkspaceLayer as i32 {
            let layer = self.layer.lock().unwrap();
            let after = String::from_utf8(list.after.clone()).unwrap();
            let mut entries: Vec<_> = layer
                .range::<String, _>((std::ops::Bound::Excluded(after), std::ops::Bound::Unbounded))
                .map(|(_, (metadata, _))| metadata.clone())
                .collect();
            // Small pages, so that paging is used.
            let more = entries.len() > 2;
            entries.truncate(2);
            return Body::Entries(v1::Entries { entries, more });
        }
        let prefix = [&list.path[..], b"/"].concat();
        let files = self.files.lock().unwrap();
        let entries = files.iter().filter_map(|(path, content)| {
            let path = path.strip_prefix(&prefix[..])?.to_vec();
            let size = content.len() as u64;
            Some(v1::Metadata { path, size, modified_ns: i64::MAX, ..v1::Metadata::default() })
        });
        Body::Entries(v1::Entries { entries: entries.collect(), more: false })
    }

    fn start(self: &Arc<Self>, start: v1::Start, sender: &Sender, stream: u64) {
        let words: Vec<String> = match start.program.unwrap() {
            v1::start::Program::Argv(argv) => {
                argv.args.iter().map(|a| String::from_utf8_lossy(a).into_owned()).collect()
            }
            v1::start::Program::ShellLine(line) => {
                String::from_utf8(line).unwrap().split(' ').map(str::to_owned).collect()
            }
        };
        let refuse = |body| drop(sender.send(Frame { stream, body: Some(body) }));
        match words[0].as_str() {
            "missing" => return refuse(failure("program-not-found", "exec", 2)),
            "denied" => return refuse(failure("program-denied", "exec", 0)),
            "not-executable" => return refuse(failure("program-not-executable", "exec", 13)),
            _ if start.working_directory == b"/nowhere" => {
                return refuse(failure("working-directory-invalid", "chdir", 2));
            }
            _ => {}
        }
        let process = Arc::new(FakeProcess::default());
        process.state.lock().unwrap().listener = Some((sender.clone(), stream));
        process.send(Body::Started(v1::Started { pid: 7, stdin_offset: 0 }));
        self.processes.lock().unwrap().insert(start.process.clone(), Arc::clone(&process));
        let agent = Arc::clone(self);
        let timeout = Duration::from_millis(start.timeout_ms);
        tokio::spawn(async move {
            let number = || words[1].parse::<usize>().unwrap();
            let killed = async {
                process.killed.notified().await;
                Status::Signal(15)
            };
            let work = async {
                match words[0].as_str() {
                    "exit" => return Status::Code(number() as i32),
                    "echo" => process.write(&agent, Channel::Stdout, words[1].as_bytes()).await,
                    "warn" => {
                        process.write(&agent, Channel::Stderr, words[1].as_bytes()).await;
                        return Status::Code(3);
                    }
                    "env" => {
                        let value = start.environment.get(&words[1]).cloned().unwrap_or_default();
                        process.write(&agent, Channel::Stdout, value.as_bytes()).await;
                    }
                    "flood" => {
                        let mut left = number();
                        while left > 0 {
                            let size = left.min(64 << 10);
                            process.write(&agent, Channel::Stdout, &vec![b'y'; size]).await;
                            left -= size;
                        }
                    }
                    "cut" => {
                        process.write(&agent, Channel::Stdout, &vec![b'a'; number()]).await;
                        agent.disconnect();
                        process.state.lock().unwrap().listener = None;
                        process.write(&agent, Channel::Stdout, &vec![b'b'; number()]).await;
                    }
                    "cat" => process.copy_input(&agent).await,
                    "hang" | "stuck" => std::future::pending().await,
                    "oom" => {
                        agent.counters.lock().unwrap().oom_kills += 1;
                        return Status::Signal(9);
                    }
                    "forks" => {
                        agent.counters.lock().unwrap().pids_refused += 1;
                        return Status::Code(1);
                    }
                    _ => {}
                }
                Status::Code(0)
            };
            let (status, timed_out) = if words[0] == "stuck" {
                std::future::pending().await
            } else if timeout.is_zero() {
                tokio::select! { status = work => (status, false), status = killed => (status, false) }
            } else {
                tokio::select! {
                    status = work => (status, false),
                    status = killed => (status, false),
                    () = tokio::time::sleep(timeout) => (Status::Signal(9), true),
                }
            };
            let background = words[0] == "background";
            process.end(status, timed_out, !background);
            if background {
                loop {
                    process.write(&agent, Channel::Stdout, b"still here\n").await;
                    tokio::time::sleep(Duration::from_millis(1)).await;
                }
            }
        });
    }
}

impl FakeProcess {
    fn send(&self, body: Body) {
        if let Some((sender, stream)) = &self.state.lock().unwrap().listener {
            let _ = sender.send(Frame { stream: *stream, body: Some(body) });
        }
    }

    async fn write(&self, agent: &FakeAgent, channel: Channel, data: &[u8]) {
        for piece in data.chunks(64 << 10) {
            while !self.try_write(agent, channel, piece) {
                self.acknowledged.notified().await;
            }
        }
    }

    /// False: the window is full.
    fn try_write(&self, agent: &FakeAgent, channel: Channel, piece: &[u8]) -> bool {
        let index = channel as usize;
        let offset = {
            let mut state = self.state.lock().unwrap();
            if state.kept[index].len() + piece.len() > WINDOW {
                return false;
            }
            let offset = state.base[index] + state.kept[index].len() as u64;
            state.kept[index].extend_from_slice(piece);
            let kept = state.kept[index].len() as u64;
            agent.most_unacknowledged.fetch_max(kept, Ordering::Relaxed);
            offset
        };
        let data = piece.to_vec();
        self.send(Body::Output(v1::Output { channel: channel as i32, offset, data }));
        true
    }

    async fn copy_input(&self, agent: &FakeAgent) {
        loop {
            let arrived = self.input.notified();
            let (data, closed, taken) = {
                let mut state = self.state.lock().unwrap();
                let data = std::mem::take(&mut state.input);
                state.input_taken += data.len() as u64;
                (data, state.input_closed, state.input_taken)
            };
            if data.is_empty() {
                if closed {
                    return;
                }
                arrived.await;
                continue;
            }
            self.write(agent, Channel::Stdout, &data).await;
            let channel = Channel::Stdin as i32;
            self.send(Body::Acknowledge(v1::Acknowledge { channel, offset: taken }));
        }
    }

    fn end(&self, status: Status, timed_out: bool, close: bool) {
        let exited = {
            let mut state = self.state.lock().unwrap();
            let ends = [0, 1].map(|index| state.base[index] + state.kept[index].len() as u64);
            let exited = v1::Exited {
                status: Some(status),
                timed_out,
                cancelled: state.cancelled,
                stdout_end: ends[0],
                stderr_end: ends[1],
                ..v1::Exited::default()
            };
            state.exited = Some(exited.clone());
            exited
        };
        self.send(Body::Exited(exited));
        if close {
            self.send(Body::Closed(v1::Closed {}));
        }
    }

    fn attach(&self, attach: &v1::Attach, sender: &Sender, stream: u64) {
        let mut state = self.state.lock().unwrap();
        if let Some((old, number)) = state.listener.replace((sender.clone(), stream)) {
            let body = Some(failure("taken-over", "", 0));
            let _ = old.send(Frame { stream: number, body });
        }
        let send = |body| drop(sender.send(Frame { stream, body: Some(body) }));
        let stdin_offset = state.input_taken + state.input.len() as u64;
        send(Body::Started(v1::Started { pid: 7, stdin_offset }));
        let (channel, offset) = (Channel::Stdin as i32, state.input_taken);
        send(Body::Acknowledge(v1::Acknowledge { channel, offset }));
        for (channel, wanted) in [(0, attach.stdout_offset), (1, attach.stderr_offset)] {
            let skip = wanted.saturating_sub(state.base[channel]) as usize;
            state.kept[channel].drain(..skip);
            state.base[channel] += skip as u64;
            let mut offset = state.base[channel];
            for piece in state.kept[channel].chunks(64 << 10) {
                let data = piece.to_vec();
                send(Body::Output(v1::Output { channel: channel as i32, offset, data }));
                offset += piece.len() as u64;
            }
        }
        if let Some(exited) = state.exited.clone() {
            send(Body::Exited(exited));
            send(Body::Closed(v1::Closed {}));
        }
        drop(state);
        self.acknowledged.notify_one();
    }
}

pub fn failure(code: &str, stage: &str, errno: i32) -> Body {
    Body::Failure(v1::Failure {
        code: code.to_owned(),
        stage: stage.to_owned(),
        errno,
        ..v1::Failure::default()
    })
}

/// An entry of a workspace layer.
pub fn layer_entry(
    path: &str,
    kind: v1::Kind,
    content: &[u8],
) -> (String, (v1::Metadata, Vec<u8>)) {
    let metadata = v1::Metadata {
        path: path.as_bytes().to_vec(),
        kind: kind as i32,
        size: content.len() as u64,
        mode: if kind == v1::Kind::Directory { 0o755 } else { 0o644 },
        modified_ns: 1_000_000_000_000_000_000,
        ..v1::Metadata::default()
    };
    (path.to_owned(), (metadata, content.to_vec()))
}
