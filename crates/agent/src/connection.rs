//! One connection of a host: bytes in, frames out, both bounded.
//!
//! A connection whose outgoing queue is above [`QUEUE_BOUND`] is given nothing more by those who can wait (output,
//! file contents, changes), and no further request is read from it. Short answers to requests already read may exceed
//! the bound by little.

use belljar_protocol::v1::{Channel, Frame, frame::Body};
use belljar_protocol::{Decoder, Error, encode, encode_output};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::failure::Problem;
use crate::poller::{EventFlags, Watched};
use crate::table::Table;

/// Bytes waiting to be sent above which nothing more is produced for a connection.
pub(crate) const QUEUE_BOUND: usize = 256 * 1024;

/// What a stream of this connection is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Process(u32),
    Worker(u32),
    Tunnel(u32),
}

#[derive(Debug)]
pub(crate) struct Connection {
    socket: Watched,
    decoder: Decoder,
    queue: Vec<u8>,
    /// Bytes of the queue that the kernel has taken.
    sent: usize,
    /// Hello has been answered.
    pub(crate) greeted: bool,
    pub(crate) streams: Table<u64, Use>,
    /// Someone had more to send than there was room for.
    pub(crate) starved: bool,
    /// Nothing more is read; the connection ends when the queue is empty.
    closing: bool,
    broken: bool,
}

impl Connection {
    pub(crate) fn new(socket: Watched) -> Self {
        Self {
            socket,
            decoder: Decoder::new(),
            queue: Vec::new(),
            sent: 0,
            greeted: false,
            streams: Table::default(),
            starved: false,
            closing: false,
            broken: false,
        }
    }

    /// Reads what has arrived, at most one buffer full.
    pub(crate) fn receive(&mut self, scratch: &mut [u8]) {
        if self.closing || !self.has_room() {
            return;
        }
        match recv(&self.socket, &mut scratch[..], RecvFlags::empty()) {
            Ok((0, _)) => self.broken = true,
            Ok((size, _)) => self.decoder.push(scratch.get(..size).unwrap_or_default()),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => self.broken = true,
        }
    }

    /// The next request, if one is whole and its answer would have room.
    pub(crate) fn next_frame(&mut self) -> Option<Frame> {
        if self.closing || self.broken || !self.has_room() {
            return None;
        }
        match self.decoder.next() {
            Ok(frame) => frame,
            Err(error) => {
                let message = match error {
                    Error::TooLarge { .. } => "the frame is above the size limit",
                    _ => "the frame is not a valid message",
                };
                self.send(0, Problem::new("malformed-frame", message));
                self.close();
                None
            }
        }
    }

    /// Puts a frame into the queue.
    pub(crate) fn send(&mut self, stream: u64, body: impl Into<Body>) {
        if self.broken {
            return;
        }
        let frame = Frame { stream, body: Some(body.into()) };
        if encode(&frame, &mut self.queue).is_err() {
            let problem = Problem::new("answer-too-large", "the answer does not fit into a frame");
            let short = Frame { stream, body: Some(problem.into()) };
            let told = encode(&short, &mut self.queue);
            debug_assert!(told.is_ok(), "a failure without a path is small");
        }
    }

    /// Puts output into the queue; it is copied once.
    pub(crate) fn send_output(
        &mut self,
        stream: u64,
        channel: Channel,
        offset: u64,
        parts: [&[u8]; 2],
    ) {
        let queued = encode_output(stream, channel, offset, parts, &mut self.queue);
        debug_assert!(queued.is_ok(), "at most a chunk is sent at once");
    }

    /// Gives memory back that is not in use.
    pub(crate) fn trim(&mut self) {
        if self.queue.is_empty() {
            self.queue = Vec::new();
        }
    }

    pub(crate) fn has_room(&self) -> bool {
        self.queue.len() - self.sent < QUEUE_BOUND
    }

    /// Ends the connection once everything queued is sent.
    pub(crate) fn close(&mut self) {
        self.closing = true;
    }

    pub(crate) fn is_over(&self) -> bool {
        self.broken || (self.closing && self.queue.is_empty())
    }

    /// Gives the kernel what it takes, and waits for what is needed next.
    pub(crate) fn flush(&mut self) {
        while self.sent < self.queue.len() && !self.broken {
            match send(&self.socket, &self.queue[self.sent..], SendFlags::NOSIGNAL) {
                Ok(size) => self.sent += size,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(_) => self.broken = true,
            }
        }
        if self.sent == self.queue.len() {
            self.sent = 0;
            self.queue.clear();
        } else if self.sent >= QUEUE_BOUND {
            self.queue.drain(..self.sent);
            self.sent = 0;
        }
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::OUT, !self.queue.is_empty());
        interest.set(EventFlags::IN, !self.closing && self.has_room());
        if self.socket.set_interest(interest).is_err() {
            self.broken = true;
        }
    }
}
