//! The way out to the agent.
//!
//! Posting writes to the socket at once where it can, so the usual request costs one system call and no other task.
//! What the socket does not take waits in a buffer for the writer task. A frame is enqueued whole or not at all, and
//! giving up waiting never cuts one in two.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belljar_protocol::v1::Frame;
use belljar_socket::Socket;
use tokio::sync::Notify;

/// Senders of bulk data wait while more than this is buffered.
const HIGH: usize = 512 << 10;

/// An agent that lets this much pile up has stopped reading.
const MAX_BYTES: usize = 8 << 20;

/// What has time waits for company up to this much.
const MAX_WAITING: usize = 4 << 10;

#[derive(Debug, Default)]
pub(super) struct Outgoing {
    buffer: Mutex<Buffer>,
    filled: Notify,
    drained: Notify,
}

#[derive(Debug, Default)]
struct Buffer {
    /// What the socket did not take.
    bytes: Vec<u8>,
    /// Goes ahead of what is posted next.
    waiting: Vec<u8>,
}

impl Outgoing {
    /// Sends frames, together, or buffers what the socket does not take. Never waits.
    pub(super) fn post(&self, socket: &Socket, frames: &[Frame]) -> io::Result<()> {
        let Buffer { bytes, waiting } = &mut *self.lock();
        if bytes.len() > MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the agent does not read"));
        }
        let was_empty = bytes.is_empty();
        bytes.append(waiting);
        for frame in frames {
            encode(frame, bytes)?;
        }
        if was_empty {
            flush(socket, bytes)?;
        }
        if !bytes.is_empty() {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Sends a frame together with what is posted next: it would wake the agent for something that has time.
    pub(super) fn post_later(&self, socket: &Socket, frame: &Frame) -> io::Result<()> {
        let full = {
            let waiting = &mut self.lock().waiting;
            encode(frame, waiting)?;
            waiting.len() > MAX_WAITING
        };
        if full { self.post(socket, &[]) } else { Ok(()) }
    }

    /// Waits until there is room for more bulk data.
    pub(super) async fn room(&self) {
        loop {
            let drained = self.drained.notified();
            if self.lock().bytes.len() <= HIGH {
                return;
            }
            drained.await;
        }
    }

    /// The writer task: ends with the error that ends the connection.
    pub(super) async fn drain(&self, socket: &Socket) -> io::Error {
        loop {
            self.filled.notified().await;
            loop {
                if let Err(error) = socket.room().await {
                    return error;
                }
                let bytes = &mut self.lock().bytes;
                if let Err(error) = flush(socket, bytes) {
                    return error;
                }
                if bytes.len() <= HIGH {
                    self.drained.notify_waiters();
                }
                if bytes.is_empty() {
                    break;
                }
            }
        }
    }

    /// Lets everybody who waits for room go; used when the connection has ended.
    pub(super) fn release(&self) {
        *self.lock() = Buffer::default();
        self.drained.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Adds a frame, whole or not at all.
fn encode(frame: &Frame, bytes: &mut Vec<u8>) -> io::Result<()> {
    belljar_protocol::encode(frame, bytes)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))
}

/// Writes as much as the socket takes now.
fn flush(socket: &Socket, buffer: &mut Vec<u8>) -> io::Result<()> {
    let mut written = 0;
    let result = loop {
        if written == buffer.len() {
            break Ok(());
        }
        match socket.try_send(&buffer[written..]) {
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    buffer.drain(..written);
    result
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use belljar_protocol::Decoder;
    use belljar_protocol::v1::{Forget, Ping, frame::Body};

    use super::*;

    fn frame(stream: u64, body: Body) -> Frame {
        Frame { stream, body: Some(body) }
    }

    fn forget(stream: u64) -> Frame {
        frame(stream, Body::Forget(Forget { process: "p".repeat(24), silent: true }))
    }

    /// The streams of the frames that have arrived.
    fn arrived(socket: &mut std::os::unix::net::UnixStream) -> Vec<u64> {
        let (mut decoder, mut buffer) = (Decoder::new(), vec![0; 64 << 10]);
        let Ok(count) = socket.read(&mut buffer) else { return Vec::new() };
        decoder.push(&buffer[..count]);
        std::iter::from_fn(|| decoder.next().unwrap()).map(|frame| frame.stream).collect()
    }

    #[tokio::test]
    async fn what_has_time_goes_with_the_next() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let socket = Socket::new(ours).unwrap();
        let outgoing = Outgoing::default();
        outgoing.post_later(&socket, &forget(1)).unwrap();
        outgoing.post_later(&socket, &forget(2)).unwrap();
        assert!(arrived(&mut theirs).is_empty());
        outgoing.post(&socket, &[frame(3, Body::Ping(Ping {}))]).unwrap();
        assert_eq!(arrived(&mut theirs), [1, 2, 3]);
        outgoing.post(&socket, &[frame(4, Body::Ping(Ping {}))]).unwrap();
        assert_eq!(arrived(&mut theirs), [4], "once");

        // Where nothing else is said for long, much of it goes by itself.
        for stream in 0..1000 {
            outgoing.post_later(&socket, &forget(stream)).unwrap();
        }
        let gone = arrived(&mut theirs).len();
        assert!((1000 - MAX_WAITING / 24..1000).contains(&gone), "{gone}");
    }
}
