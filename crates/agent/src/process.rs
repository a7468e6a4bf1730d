//! One process that the host asked for: its pipes, what it wrote, how it ended, and who listens.
//!
//! A record lives from the start until the host forgets it. Output is kept until acknowledged, at most a window of it
//! per channel; then the pipe is no longer read and the writer waits. Only when the main process has ended and nobody
//! listens is the oldest output dropped, and counted: that of the main process itself has room beside what comes after.

mod control;
mod ending;
mod input;
mod output;
mod plan;
mod start;

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use belljar_protocol::MAX_CHUNK;
use belljar_protocol::v1::{self, Closed, Exited, ProcessState, Started};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::connection::Connection;
use crate::failure::Problem;
use crate::poller::{EventFlags, Watched};
use crate::tree::Tree;
use input::Feed;
use output::Kept;

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: String,
    /// The program as asked for, for messages.
    program: Vec<u8>,
    working_directory: Vec<u8>,
    pub(crate) pid: Option<Pid>,
    /// Open until it is known whether the program runs.
    status: Option<Watched>,
    /// What a failed start had to say.
    not_started: Option<Problem>,
    channels: [Channel; 2],
    input: Feed,
    /// How much input the host was last told about.
    input_told: u64,
    is_terminal: bool,
    listener: Option<Listener>,
    pub(crate) tree: Option<Tree>,
    /// Until then it may well end at once, and what is told of it waits for that.
    young_until: Option<Instant>,
    /// The word about the start waits for company, too.
    patient: bool,
    /// When the timeout strikes, and how long the group then has.
    timeout: Option<(Instant, u32)>,
    /// When the tree is killed after it was asked to leave.
    kill_at: Option<Instant>,
    /// When it is no longer waited for after it was killed.
    give_up_at: Option<Instant>,
    timed_out: bool,
    cancelled: bool,
    pub(crate) memory_exceeded: bool,
    pub(crate) pids_exhausted: bool,
    ended: Option<Exited>,
    /// The host has recorded the end; only open pipes keep the record.
    forgotten: bool,
}

/// One direction of output.
#[derive(Debug, Default)]
struct Channel {
    /// `None` at its end.
    source: Option<Watched>,
    /// The writing end, while the process is young: nothing follows from its being closed by others before the main process
    /// ends, and hearing of it would be one more turn of the loop for every short command.
    writer: Option<OwnedFd>,
    kept: Kept,
    dropped: u64,
}

/// Who gets the output, and how far.
#[derive(Debug)]
struct Listener {
    connection: u32,
    stream: u64,
    sent: [u64; 2],
    told_start: bool,
    told_end: bool,
    told_close: bool,
}

const CHANNELS: [v1::Channel; 2] = [v1::Channel::Stdout, v1::Channel::Stderr];

/// What a pipe holds: a main process may leave this much in it beyond the window, and none of that is dropped.
const PIPE: usize = 64 << 10;

/// Reads from one pipe before others get their turn.
const READS_AT_ONCE: usize = 4;

impl Process {
    /// The program runs or has run. One that was stopped on its way, and killed for that, counts too, though its number may
    /// have stayed unknown: whoever waits for it is told how it ended.
    fn has_started(&self) -> bool {
        self.status.is_none() && (self.pid.is_some() || !self.is_running())
    }

    /// The main process has not ended, as far as is known.
    pub(crate) fn is_running(&self) -> bool {
        self.ended.is_none()
    }

    pub(crate) fn listener(&self) -> Option<(u32, u64)> {
        self.listener.as_ref().map(|listener| (listener.connection, listener.stream))
    }

    /// Whether the stream that listens has been told everything.
    pub(crate) fn has_told_close(&self) -> bool {
        self.listener.as_ref().is_none_or(|listener| listener.told_close)
    }

    /// A connection is gone, and with it whoever listened on it.
    pub(crate) fn lose_listener(&mut self, connection: u32) {
        self.listener.take_if(|listener| listener.connection == connection);
    }

    /// Reads what a channel has, as far as there is room.
    pub(crate) fn read(&mut self, index: usize, window: usize, scratch: &mut [u8]) {
        let may_drop = self.may_drop();
        let Some(channel) = self.channels.get_mut(index) else { return };
        for _ in 0..READS_AT_ONCE {
            let Some(source) = &channel.source else { return };
            let room =
                if may_drop { scratch.len() } else { window.saturating_sub(channel.kept.len()) };
            let room = room.min(scratch.len());
            if room == 0 {
                return;
            }
            match rustix::io::read(source, &mut scratch[..room]) {
                Ok(0) => channel.source = None,
                Ok(size) => {
                    channel.kept.push(scratch.get(..size).unwrap_or_default());
                    if may_drop {
                        channel.dropped += channel.kept.release_above(window + PIPE);
                    }
                    if size < room {
                        return;
                    }
                }
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => {}
                // A terminal whose other side is closed says EIO.
                Err(_) => channel.source = None,
            }
        }
    }

    /// Whether the oldest output may go: nobody will take it.
    fn may_drop(&self) -> bool {
        self.forgotten || (self.ended.is_some() && self.listener.is_none())
    }

    /// Waits for what can be used: output if there is room for it, and nothing before the program runs.
    pub(crate) fn update_interest(&mut self, window: usize) {
        let started = self.has_started();
        let may_drop = self.may_drop();
        for channel in &mut self.channels {
            let wanted = started && (may_drop || channel.kept.len() < window);
            let interest = if wanted { EventFlags::IN } else { EventFlags::empty() };
            if channel.source.as_mut().is_some_and(|source| source.set_interest(interest).is_err())
            {
                channel.source = None;
            }
        }
    }

    /// Sends the listener everything that it does not have yet, as far as its connection has room.
    pub(crate) fn deliver(&mut self, connection: &mut Connection) {
        let (started, closed) = (self.has_started(), self.is_closed());
        if let Some(problem) = &self.not_started {
            if let Some(Listener { stream, .. }) = self.listener.take() {
                connection.streams.remove(stream);
                connection.send(stream, problem.clone());
            }
            return;
        }
        let Some(listener) = &mut self.listener else { return };
        let stream = listener.stream;
        if !started {
            return;
        }
        if !listener.told_start {
            let silent = self.channels.iter().all(|channel| channel.kept.end() == 0);
            if self.patient && self.young_until.is_some() && self.ended.is_none() && silent {
                return;
            }
            listener.told_start = true;
            let stdin_offset = self.input.received();
            let pid = self.pid.map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned());
            connection.send(stream, v1::frame::Body::Started(Started { pid, stdin_offset }));
        }
        if self.input.offset() > self.input_told {
            self.input_told = self.input.offset();
            let channel = v1::Channel::Stdin.into();
            let acknowledge = v1::Acknowledge { channel, offset: self.input_told };
            connection.send(stream, v1::frame::Body::Acknowledge(acknowledge));
        }
        let mut all_sent = true;
        for (index, channel) in self.channels.iter().enumerate() {
            let sent = &mut listener.sent[index];
            while *sent < channel.kept.end() {
                if !connection.has_room() {
                    connection.starved = true;
                    all_sent = false;
                    break;
                }
                let (offset, parts) = channel.kept.since(*sent, MAX_CHUNK);
                *sent = offset + (parts[0].len() + parts[1].len()) as u64;
                connection.send_output(stream, CHANNELS[index], offset, parts);
            }
        }
        // Not held back by output: with a background child that never stops writing it would never go out.
        if let (Some(ended), false) = (&self.ended, listener.told_end) {
            listener.told_end = true;
            connection.send(stream, v1::frame::Body::Exited(ended.clone()));
        }
        if closed && all_sent && listener.told_end && !listener.told_close {
            listener.told_close = true;
            connection.send(stream, v1::frame::Body::Closed(Closed {}));
        }
    }

    /// Nothing waits for its end any more.
    fn grow_up(&mut self) {
        self.young_until = None;
        self.channels.iter_mut().for_each(|channel| channel.writer = None);
    }

    /// Gives memory back that is not in use.
    pub(crate) fn trim(&mut self) {
        for channel in &mut self.channels {
            channel.kept.trim();
        }
    }

    /// The main process ended and nobody can write any more.
    fn is_closed(&self) -> bool {
        self.ended.is_some() && self.channels.iter().all(|channel| channel.source.is_none())
    }

    /// Nothing about it matters any more.
    pub(crate) fn is_over(&self) -> bool {
        let tree_is_gone = self.tree.is_none();
        (self.not_started.is_some() || (self.forgotten && self.is_closed())) && tree_is_gone
    }

    /// The next moment at which something is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let tree = match &self.tree {
            Some(Tree::Supervised(supervisor)) => supervisor.deadline(),
            Some(Tree::Direct(direct)) => direct.deadline(),
            _ => None,
        };
        let timeout = self.timeout.map(|(at, _)| at);
        let due = [timeout, self.young_until, self.kill_at, self.give_up_at, tree];
        due.into_iter().flatten().min()
    }

    /// The terminal's master side, if there is one.
    fn terminal(&self) -> Option<impl AsFd + '_> {
        self.channels[0].source.as_ref().filter(|_| self.is_terminal)
    }

    pub(crate) fn state(&self) -> ProcessState {
        let [stdout, stderr] = &self.channels;
        ProcessState {
            process: self.name.clone(),
            pid: self.pid.map_or(0, |pid| pid.as_raw_nonzero().get().cast_unsigned()),
            running: self.is_running(),
            exited: self
                .ended
                .clone()
                .map(|ended| Exited { dropped_bytes: self.dropped(), ..ended }),
            stdout_kept_from: stdout.kept.start(),
            stdout_end: stdout.kept.end(),
            stderr_kept_from: stderr.kept.start(),
            stderr_end: stderr.kept.end(),
        }
    }

    fn dropped(&self) -> u64 {
        self.channels.iter().map(|channel| channel.dropped).sum()
    }
}
