//! A connection to one agent: greeting, streams, events.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{self, Frame, Hello};
use belljar_protocol::{Decoder, OLDEST_VERSION, VERSION};
use belljar_socket::Socket;
use tokio::sync::watch;
use tokio::task::AbortHandle;

use super::outgoing::Outgoing;
use super::queue::Queue;
use super::{AgentError, Stream};

/// An agent that has not greeted by then never will. Generous: a loaded machine starts hundreds at once.
const GREETING: Duration = Duration::from_secs(30);

/// How often an agent with open streams is spoken to, so that a silent command does not look like an idle sandbox.
/// Well below any sensible idle timeout.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

const READ_SIZE: usize = 64 << 10;

/// What the agent reports without being asked, and the beat of the connection's own clock.
#[derive(Debug)]
pub(crate) enum Report {
    Event(v1::event::What),
    /// Code in the sandbox calls a tool.
    ToolCall(v1::ToolCall),
    /// It no longer waits for the answer.
    ToolCancel(v1::ToolCancel),
    /// The connection is in use; comes every [`KEEP_ALIVE`] at most.
    Alive,
}

/// Takes reports, on the reader's time: must be quick.
pub(crate) type Reporter = Box<dyn Fn(Report) + Send + Sync>;

pub(crate) struct Connection {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
}

struct Shared {
    socket: Socket,
    outgoing: Outgoing,
    streams: Mutex<Streams>,
    next_stream: AtomicU64,
    /// A frame has come since the agent was last spoken to for the sake of speaking.
    heard: AtomicBool,
    greeting: watch::Sender<Greeting>,
    /// The agent was asked for the calls of tools.
    serves_tools: AtomicBool,
    reporter: Reporter,
    /// Whether this connection configures the agent; otherwise somebody has done so before.
    configures: bool,
}

#[derive(Debug, Default)]
struct Streams {
    open: HashMap<u64, Open>,
    closed: Option<AgentError>,
}

#[derive(Debug)]
struct Open {
    queue: Arc<Queue>,
    /// Somebody attends to the sandbox by it.
    attends: bool,
}

#[derive(Clone, Debug)]
enum Greeting {
    Waiting,
    Configured,
    Failed(AgentError),
}

impl Connection {
    /// Greets, and configures where this is the first connection. Returns at once: requests may follow before the agent
    /// has answered.
    pub(crate) fn open(
        socket: belljar_backend::Stream,
        configure: Option<v1::Configure>,
        reporter: Reporter,
    ) -> Result<Arc<Self>, AgentError> {
        let socket = socket.into_std().and_then(Socket::new).map_err(|_| AgentError::Gone)?;
        let shared = Arc::new(Shared {
            socket,
            outgoing: Outgoing::default(),
            streams: Mutex::default(),
            next_stream: AtomicU64::new(1),
            heard: AtomicBool::new(true),
            greeting: watch::Sender::new(Greeting::Waiting),
            serves_tools: AtomicBool::new(false),
            reporter,
            configures: configure.is_some(),
        });
        let hello = Hello { oldest_version: OLDEST_VERSION, newest_version: VERSION };
        let greeting = [Some(Body::Hello(hello)), configure.map(Body::Configure)];
        let greeting = greeting.into_iter().flatten();
        let frames: Vec<_> = greeting.map(|body| Frame { stream: 0, body: Some(body) }).collect();
        shared.post(&frames)?;
        let reader = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                let error = shared.read().await;
                shared.close(&error);
            }
        });
        let writer = tokio::spawn({
            let shared = Arc::clone(&shared);
            async move {
                let error = shared.outgoing.drain(&shared.socket).await;
                tracing::debug!(%error, "the way out to an agent ended");
                shared.close(&AgentError::Gone);
            }
        });
        Ok(Arc::new(Self { shared, tasks: [reader.abort_handle(), writer.abort_handle()] }))
    }

    /// Waits until the agent has said that it is configured.
    pub(crate) async fn configured(&self) -> Result<(), AgentError> {
        let mut greeting = self.shared.greeting.subscribe();
        let settled = greeting.wait_for(|greeting| !matches!(greeting, Greeting::Waiting));
        match tokio::time::timeout(GREETING, settled).await {
            Ok(Ok(greeting)) => match &*greeting {
                Greeting::Failed(error) => Err(error.clone()),
                Greeting::Waiting | Greeting::Configured => Ok(()),
            },
            Ok(Err(_)) => Err(AgentError::Gone),
            Err(_) => Err(AgentError::breach("no greeting in time")),
        }
    }

    /// Opens a stream with its first frame.
    pub(crate) fn request(self: &Arc<Self>, body: Body) -> Result<Stream, AgentError> {
        self.open_stream(body, true)
    }

    /// Asks and waits for the one answer, without attending to the sandbox: it may end for being idle meanwhile.
    pub(crate) async fn ask_aside(self: &Arc<Self>, body: Body) -> Result<Body, AgentError> {
        self.open_stream(body, false)?.answer().await
    }

    fn open_stream(self: &Arc<Self>, body: Body, attends: bool) -> Result<Stream, AgentError> {
        let number = self.shared.next_stream.fetch_add(1, Ordering::Relaxed);
        let queue = Arc::new(Queue::new());
        {
            let mut streams = self.shared.streams();
            if let Some(error) = &streams.closed {
                return Err(error.clone());
            }
            streams.open.insert(number, Open { queue: Arc::clone(&queue), attends });
        }
        let stream = Stream::new(number, queue, Arc::clone(self));
        stream.post(body)?;
        Ok(stream)
    }

    /// Asks and waits for the one answer.
    pub(crate) async fn ask(self: &Arc<Self>, body: Body) -> Result<Body, AgentError> {
        self.request(body)?.answer().await
    }

    /// Says something whose answer nobody needs.
    pub(crate) fn tell(&self, body: Body) -> Result<(), AgentError> {
        self.post(self.aside(body))
    }

    /// The same, of something that has time until more is said.
    pub(crate) fn tell_later(&self, body: Body) -> Result<(), AgentError> {
        let sent = self.shared.outgoing.post_later(&self.shared.socket, &self.aside(body));
        sent.map_err(not_sent)
    }

    /// A frame on a stream of its own, on which nobody listens.
    fn aside(&self, body: Body) -> Frame {
        let number = self.shared.next_stream.fetch_add(1, Ordering::Relaxed);
        Frame { stream: number, body: Some(body) }
    }

    pub(crate) fn is_open(&self) -> bool {
        self.shared.streams().closed.is_none()
    }

    /// Ends the connection; whoever waits on one of its streams is told that the sandbox is gone.
    pub(crate) fn close(&self) {
        self.shared.close(&AgentError::Gone);
    }

    pub(super) fn post(&self, frame: Frame) -> Result<(), AgentError> {
        self.shared.post(&[frame])
    }

    /// Asks to be given the calls of tools from inside.
    pub(crate) fn serve_tools(&self) -> Result<(), AgentError> {
        match self.shared.serves_tools.swap(true, Ordering::Relaxed) {
            true => Ok(()),
            false => self.tell(Body::ServeTools(v1::ServeTools::default())),
        }
    }

    /// Gives calls of tools back to whoever else answers them.
    pub(crate) fn withdraw_tools(&self) {
        if self.shared.serves_tools.swap(false, Ordering::Relaxed) {
            // An agent that is gone has nobody that calls.
            let _ = self.tell(Body::ServeTools(v1::ServeTools { withdrawn: true }));
        }
    }

    /// Sends a piece of an answer to a call from inside, after waiting for room in the way out.
    pub(crate) async fn answer_tool(&self, answer: v1::ToolAnswer) -> Result<(), AgentError> {
        self.room().await;
        self.post(Frame { stream: 0, body: Some(Body::ToolAnswer(answer)) })
    }

    pub(super) async fn room(&self) {
        self.shared.outgoing.room().await;
    }

    pub(super) fn forget(&self, number: u64) {
        self.shared.streams().open.remove(&number);
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // What had time until now.
        let _ = self.shared.post(&[]);
        for task in &self.tasks {
            task.abort();
        }
    }
}

impl Shared {
    fn post(&self, frames: &[Frame]) -> Result<(), AgentError> {
        self.outgoing.post(&self.socket, frames).map_err(not_sent)
    }

    /// The reader task: ends with the reason for the connection's end.
    async fn read(&self) -> AgentError {
        let mut decoder = Decoder::new();
        // Most agents say little, so most of this is never touched.
        let mut buffer = Vec::with_capacity(READ_SIZE);
        let mut beat = tokio::time::interval(KEEP_ALIVE);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        beat.reset();
        loop {
            buffer.clear();
            tokio::select! {
                received = self.socket.receive(&mut buffer) => match received {
                    Ok(0) | Err(_) => return AgentError::Gone,
                    Ok(_) => decoder.push(&buffer),
                },
                _ = beat.tick() => {
                    if let Err(error) = self.keep_alive() {
                        return error;
                    }
                    continue;
                }
            }
            loop {
                match decoder.next() {
                    Ok(Some(frame)) => {
                        if let Err(error) = self.take(frame) {
                            return error;
                        }
                    }
                    Ok(None) => break,
                    Err(error) => return AgentError::breach(error.to_string()),
                }
            }
        }
    }

    fn take(&self, frame: Frame) -> Result<(), AgentError> {
        self.heard.store(true, Ordering::Relaxed);
        match (frame.stream, frame.body) {
            (_, Some(Body::Welcome(welcome))) => self.welcome(&welcome),
            (_, Some(Body::Configured(_))) => {
                self.greeting.send_replace(Greeting::Configured);
                Ok(())
            }
            (0, Some(Body::Failure(failure))) => Err(AgentError::refused(failure)),
            (0, Some(Body::Event(v1::Event { what: Some(what) }))) => {
                (self.reporter)(Report::Event(what));
                Ok(())
            }
            (0, Some(Body::ToolCall(call))) => {
                (self.reporter)(Report::ToolCall(call));
                Ok(())
            }
            (0, Some(Body::ToolCancel(cancel))) => {
                (self.reporter)(Report::ToolCancel(cancel));
                Ok(())
            }
            // Unknown bodies and answers to streams that nobody waits for are ignored, as the protocol asks.
            (0, _) | (_, None) => Ok(()),
            (number, Some(body)) => {
                let queue = self.streams().open.get(&number).map(|open| Arc::clone(&open.queue));
                match queue {
                    Some(queue) => queue
                        .push(body)
                        .map_err(|_| AgentError::breach("more data than the window allows")),
                    None => Ok(()),
                }
            }
        }
    }

    fn welcome(&self, welcome: &v1::Welcome) -> Result<(), AgentError> {
        if !(OLDEST_VERSION..=VERSION).contains(&welcome.version) {
            let version = welcome.version;
            return Err(AgentError::breach(format!("it speaks version {version}")));
        }
        if welcome.configured {
            self.greeting.send_replace(Greeting::Configured);
        } else if !self.configures {
            return Err(AgentError::breach("it was never configured"));
        }
        Ok(())
    }

    fn keep_alive(&self) -> Result<(), AgentError> {
        // One that does not answer, because it is paused for example, is neither in use nor to be pressed.
        let attended = self.streams().open.values().any(|open| open.attends);
        if attended && self.heard.swap(false, Ordering::Relaxed) {
            self.post(&[Frame { stream: 0, body: Some(Body::Ping(v1::Ping {})) }])?;
            (self.reporter)(Report::Alive);
        }
        Ok(())
    }

    fn close(&self, error: &AgentError) {
        let queues: Vec<_> = {
            let mut streams = self.streams();
            streams.closed.get_or_insert_with(|| error.clone());
            streams.open.values().map(|open| Arc::clone(&open.queue)).collect()
        };
        self.greeting.send_if_modified(|greeting| {
            let waiting = matches!(greeting, Greeting::Waiting);
            if waiting {
                *greeting = Greeting::Failed(error.clone());
            }
            waiting
        });
        for queue in queues {
            queue.close(error);
        }
        self.outgoing.release();
        // The agent sees the end too, and the reader task wakes up.
        let _ = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[allow(clippy::needless_pass_by_value)] // as `map_err` gives it
fn not_sent(error: std::io::Error) -> AgentError {
    match error.kind() {
        std::io::ErrorKind::InvalidInput => AgentError::TooLarge,
        std::io::ErrorKind::TimedOut => AgentError::breach("it does not read"),
        _ => AgentError::Gone,
    }
}
