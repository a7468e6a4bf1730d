//! File requests: each is done by a forked worker with the workload's own identity, so that the kernel decides what a
//! path may reach. Here is the agent's side: start it, pass frames on with flow control, end it.
//!
//! A worker may be stopped, killed or slowed down by the workload (it has its user). Nothing here waits for it, and
//! what it sends is checked as if the workload had sent it.

mod change;
mod layer;
mod list;
mod metadata;
mod read;
mod watch;
mod worker;
mod write;

use std::os::fd::{AsFd, AsRawFd};

use belljar_protocol::v1::{self, Data, Frame, Root, frame::Body};
use belljar_protocol::{Decoder, MAX_CHUNK, encode};
use belljar_sys::{fork, signals};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socketpair,
};
use rustix::process::{Pid, Signal};

use crate::agent::{Agent, Child};
use crate::connection::{Connection, Use};
use crate::failure::{Problem, Result};
use crate::poller::{EventFlags, Token, Watched};

/// Workers at once, watches included.
const MOST_WORKERS: usize = 64;

#[derive(Debug)]
pub(crate) struct Worker {
    connection: u32,
    stream: u64,
    pid: Pid,
    socket: Watched,
    decoder: Decoder,
    /// The worker sends no more.
    ended: bool,
    /// A watch goes on after its `Done`.
    is_watch: bool,
    /// Contents of a file on the way to the host: sent, and acknowledged by it.
    sent: u64,
    acknowledged: u64,
    /// Contents from the host on the way to the worker.
    queue: Vec<u8>,
    taken: usize,
}

/// What became of a worker after a look at what it sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    GoesOn,
    Finished,
}

impl Agent {
    pub(crate) fn start_worker(&mut self, connection: u32, stream: u64, request: Body) -> Result {
        let setup = self.setup()?;
        if self.workers.len() >= MOST_WORKERS {
            return Err(Problem::new("busy", "too many file requests at once"));
        }
        let layer = if wants_layer(&request) {
            let missing = || Problem::new("no-layer", "this sandbox has no workspace layer");
            Some(setup.workspace_layer.as_ref().ok_or_else(missing)?)
        } else {
            None
        };
        let (credentials, capabilities) = setup.credentials(&setup.user)?;
        let failed = |errno: Errno| Problem::system("start-failed", "socketpair", &errno.into());
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)
                .map_err(failed)?;
        rustix::io::ioctl_fionbio(&ours, true).map_err(failed)?;
        let mut kept = vec![theirs.as_raw_fd()];
        kept.extend(layer.map(AsRawFd::as_raw_fd));
        kept.extend(setup.confinement.landlock.as_ref().map(AsRawFd::as_raw_fd));
        let is_watch = matches!(request, Body::Watch(_));
        let forked = self.oom_score.raised(|| {
            fork::fork(&kept, |_| {
                let confine = || match layer {
                    // The layer is ours to read, whoever owns what is in it.
                    Some(_) => Ok(()),
                    None => setup.confinement.apply(credentials.as_ref(), capabilities),
                };
                let context = worker::Context {
                    working_directory: &setup.working_directory,
                    layer: layer.map(AsFd::as_fd),
                };
                worker::run(theirs.as_fd(), confine, &context, request);
            })
        });
        let pid = forked.map_err(|error| match error.kind() {
            std::io::ErrorKind::WouldBlock => Problem::system("pids-exhausted", "fork", &error),
            _ => Problem::system("start-failed", "fork", &error),
        })?;
        let key = self.new_id();
        self.children.insert(pid.as_raw_nonzero().get(), Child::Worker(key));
        let mut socket = self.poller.own(ours, Token::Worker(key));
        socket.set_interest(EventFlags::IN).map_err(failed)?;
        let worker = Worker {
            connection,
            stream,
            pid,
            socket,
            decoder: Decoder::new(),
            ended: false,
            is_watch,
            sent: 0,
            acknowledged: 0,
            queue: Vec::new(),
            taken: 0,
        };
        self.workers.insert(key, worker);
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.streams.insert(stream, Use::Worker(key));
        }
        Ok(())
    }

    pub(crate) fn on_worker(&mut self, key: u32) {
        if let Some(worker) = self.workers.get_mut(key) {
            worker.send_queue();
            worker.receive(&mut self.scratch);
        }
    }

    /// Passes on what workers have sent, as far as hosts take it.
    pub(crate) fn relay_workers(&mut self) {
        let window = self.window() as u64;
        let mut finished = Vec::new();
        for (key, worker) in self.workers.iter_mut() {
            let Some(connection) = self.connections.get_mut(worker.connection) else { continue };
            match worker.relay(connection, window) {
                Outcome::GoesOn => worker.update_interest(connection, window),
                Outcome::Finished => finished.push(key),
            }
        }
        for key in finished {
            self.end_worker(key);
        }
    }

    pub(crate) fn acknowledge_worker(&mut self, key: u32, offset: u64) {
        if let Some(worker) = self.workers.get_mut(key) {
            worker.acknowledged = worker.acknowledged.max(offset.min(worker.sent));
        }
    }

    /// Contents from the host.
    pub(crate) fn feed_worker(&mut self, key: u32, data: Data) {
        let window = self.window();
        let Some(worker) = self.workers.get_mut(key) else { return };
        let waiting = worker.queue.len() - worker.taken;
        if data.data.len() > MAX_CHUNK || waiting + data.data.len() > window + MAX_CHUNK {
            let (connection, stream) = (worker.connection, worker.stream);
            self.end_worker(key);
            let problem = Problem::new("window-exceeded", "more data than was acknowledged");
            self.reply(connection, stream, problem);
            return;
        }
        let frame = Frame { stream: 0, body: Some(Body::Data(data)) };
        let queued = encode(&frame, &mut worker.queue);
        debug_assert!(queued.is_ok(), "a chunk fits into a frame");
        worker.send_queue();
    }

    /// The process is gone; what it has sent is still passed on.
    pub(crate) fn worker_ended(&mut self, key: u32) {
        if let Some(worker) = self.workers.get_mut(key) {
            // Nothing can be sent by it any more, so reading cannot be held up by back-pressure for ever.
            let _ = worker.socket.set_interest(EventFlags::IN);
        }
    }

    /// Kills a worker if it still lives, and closes its stream.
    pub(crate) fn end_worker(&mut self, key: u32) {
        let Some(worker) = self.workers.remove(key) else { return };
        if self.children.get(worker.pid.as_raw_nonzero().get()).is_some() {
            let _ = signals::send(worker.pid, Signal::KILL.as_raw());
        }
        if let Some(connection) = self.connections.get_mut(worker.connection) {
            connection.streams.remove(worker.stream);
        }
    }
}

impl Worker {
    fn receive(&mut self, scratch: &mut [u8]) {
        match recv(&self.socket, &mut scratch[..], RecvFlags::empty()) {
            Ok((0, _)) => self.ended = true,
            Ok((size, _)) => self.decoder.push(scratch.get(..size).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.ended = true,
        }
    }

    fn send_queue(&mut self) {
        while self.taken < self.queue.len() {
            match send(&self.socket, &self.queue[self.taken..], SendFlags::NOSIGNAL) {
                Ok(size) => self.taken += size,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return,
                // It is gone or going; what it has said last follows.
                Err(_) => self.taken = self.queue.len(),
            }
        }
        self.queue = Vec::new();
        self.taken = 0;
    }

    fn relay(&mut self, connection: &mut Connection, window: u64) -> Outcome {
        while self.may_send(connection, window) {
            let body = match self.decoder.next() {
                Ok(Some(frame)) => frame.body,
                Ok(None) if !self.ended => return Outcome::GoesOn,
                Ok(None) => return self.fail(connection, "the worker ended without an answer"),
                Err(_) => return self.fail(connection, "the worker spoke nonsense"),
            };
            let outcome = match &body {
                Some(Body::Data(data)) => {
                    self.sent += data.data.len() as u64;
                    Outcome::GoesOn
                }
                Some(Body::Done(_)) if self.is_watch => Outcome::GoesOn,
                Some(Body::Acknowledge(_) | Body::Change(_)) => Outcome::GoesOn,
                Some(Body::Done(_) | Body::Metadata(_) | Body::Entries(_) | Body::Failure(_)) => {
                    Outcome::Finished
                }
                _ => return self.fail(connection, "the worker spoke nonsense"),
            };
            if let Some(body) = body {
                connection.send(self.stream, body);
            }
            if outcome == Outcome::Finished {
                return outcome;
            }
        }
        Outcome::GoesOn
    }

    fn may_send(&self, connection: &mut Connection, window: u64) -> bool {
        if !connection.has_room() {
            connection.starved = true;
            return false;
        }
        self.sent - self.acknowledged < window
    }

    fn fail(&self, connection: &mut Connection, message: &'static str) -> Outcome {
        connection.send(self.stream, Problem::new("worker-failed", message).at("worker"));
        Outcome::Finished
    }

    /// Reads on only when everything read so far could be passed on.
    fn update_interest(&mut self, connection: &mut Connection, window: u64) {
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, !self.ended && self.may_send(connection, window));
        interest.set(EventFlags::OUT, !self.queue.is_empty());
        if self.socket.set_interest(interest).is_err() {
            self.ended = true;
        }
    }
}

fn wants_layer(request: &Body) -> bool {
    let root = match request {
        Body::ReadFile(v1::ReadFile { root, .. })
        | Body::Stat(v1::Stat { root, .. })
        | Body::List(v1::List { root, .. }) => *root,
        _ => return false,
    };
    root == Root::WorkspaceLayer as i32
}
