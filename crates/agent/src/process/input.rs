//! Standard input on its way to a process: a bounded queue in front of a pipe or a terminal.

use rustix::io::Errno;

use crate::poller::{EventFlags, Watched};

#[derive(Debug)]
pub(crate) struct Feed {
    /// `None` once closed.
    target: Option<Watched>,
    queue: Vec<u8>,
    /// Bytes of the queue that the target has taken.
    taken: usize,
    /// The host sends no more; close when the queue is empty.
    ending: bool,
    /// Bytes that the host has sent since the process started.
    received: u64,
    /// Bytes taken by the target since then.
    offset: u64,
    /// A terminal is not closed but told that input ended.
    terminal: bool,
}

/// What a terminal takes as the end of its input (the default VEOF).
const END_OF_TRANSMISSION: &[u8] = b"\x04";

impl Feed {
    pub(crate) fn pipe(target: Watched) -> Self {
        Self::new(Some(target), false)
    }

    pub(crate) fn terminal(target: Watched) -> Self {
        Self::new(Some(target), true)
    }

    pub(crate) fn closed() -> Self {
        Self::new(None, false)
    }

    fn new(target: Option<Watched>, terminal: bool) -> Self {
        Self {
            target,
            queue: Vec::new(),
            taken: 0,
            ending: false,
            received: 0,
            offset: 0,
            terminal,
        }
    }

    /// Bytes that the host has sent and the target has not taken.
    pub(crate) fn waiting(&self) -> usize {
        self.queue.len() - self.taken
    }

    /// Bytes that the host has sent since the process started.
    pub(crate) fn received(&self) -> u64 {
        self.received
    }

    /// Everything below this offset has been taken care of.
    pub(crate) fn offset(&self) -> u64 {
        // What tells a terminal that input ended was not sent by the host.
        self.offset.min(self.received)
    }

    pub(crate) fn push(&mut self, bytes: &[u8], end: bool) {
        self.received += bytes.len() as u64;
        if self.target.is_none() {
            // Nobody reads any more; acknowledging lets the host go on.
            self.offset += bytes.len() as u64;
            return;
        }
        self.queue.extend_from_slice(bytes);
        if end && !self.ending {
            if self.terminal {
                self.queue.extend_from_slice(END_OF_TRANSMISSION);
            } else {
                self.ending = true;
            }
        }
    }

    /// Writes what the target takes, and waits for more room if something is left.
    pub(crate) fn pump(&mut self) {
        let Some(target) = &mut self.target else { return };
        while self.taken < self.queue.len() {
            match rustix::io::write(&*target, &self.queue[self.taken..]) {
                Ok(size) => {
                    self.taken += size;
                    self.offset += size as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if target.set_interest(EventFlags::OUT).is_err() {
                        self.close();
                    }
                    return;
                }
                Err(_) => return self.close(),
            }
        }
        self.queue = Vec::new();
        self.taken = 0;
        if self.ending || target.set_interest(EventFlags::empty()).is_err() {
            self.close();
        }
    }

    /// Nobody will read what is still queued.
    pub(crate) fn close(&mut self) {
        self.offset += self.waiting() as u64;
        self.queue = Vec::new();
        self.taken = 0;
        self.target = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poller::{Poller, Token};
    use rustix::pipe::{PipeFlags, pipe_with};

    #[test]
    fn feeds_at_the_readers_pace_and_closes_at_the_end() {
        let poller = Poller::new().unwrap();
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mut feed = Feed::pipe(poller.own(writer, Token::Input(1)));
        let sent: Vec<u8> = (0..300_000u32).map(|number| number as u8).collect();
        feed.push(&sent, true);
        let mut received = Vec::new();
        let mut buffer = [0; 10_000];
        loop {
            feed.pump();
            assert_eq!(feed.offset() as usize + feed.waiting(), sent.len());
            match rustix::io::read(&reader, &mut buffer) {
                Ok(0) => break,
                Ok(size) => received.extend_from_slice(&buffer[..size]),
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(received, sent);
    }

    #[test]
    fn a_reader_that_left_takes_everything() {
        let poller = Poller::new().unwrap();
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let mut feed = Feed::pipe(poller.own(writer, Token::Input(1)));
        drop(reader);
        feed.push(b"lost", false);
        feed.pump();
        feed.push(b"too", true);
        assert_eq!((feed.waiting(), feed.offset()), (0, 7));
    }
}
