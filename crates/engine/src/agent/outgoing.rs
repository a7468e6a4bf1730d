//! The way out to the agent.
//!
//! Posting writes to the socket at once where it can, so the usual request costs one system call and no other task.
//! What the socket does not take waits in a buffer for the writer task. A frame is enqueued whole or not at all, and
//! giving up waiting never cuts one in two.

use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use belljar_protocol::v1::Frame;
use tokio::net::UnixStream;
use tokio::sync::Notify;

/// Senders of bulk data wait while more than this is buffered.
const HIGH: usize = 512 << 10;

/// An agent that lets this much pile up has stopped reading.
const MAX_BYTES: usize = 8 << 20;

#[derive(Debug, Default)]
pub(super) struct Outgoing {
    buffer: Mutex<Vec<u8>>,
    filled: Notify,
    drained: Notify,
}

impl Outgoing {
    /// Sends frames, together, or buffers what the socket does not take. Never waits.
    pub(super) fn post(&self, socket: &UnixStream, frames: &[Frame]) -> io::Result<()> {
        let mut buffer = self.lock();
        if buffer.len() > MAX_BYTES {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the agent does not read"));
        }
        let was_empty = buffer.is_empty();
        for frame in frames {
            belljar_protocol::encode(frame, &mut buffer)
                .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        }
        if was_empty {
            flush(socket, &mut buffer)?;
        }
        if !buffer.is_empty() {
            self.filled.notify_one();
        }
        Ok(())
    }

    /// Waits until there is room for more bulk data.
    pub(super) async fn room(&self) {
        loop {
            let drained = self.drained.notified();
            if self.lock().len() <= HIGH {
                return;
            }
            drained.await;
        }
    }

    /// The writer task: ends with the error that ends the connection.
    pub(super) async fn drain(&self, socket: &UnixStream) -> io::Error {
        loop {
            self.filled.notified().await;
            loop {
                if let Err(error) = socket.writable().await {
                    return error;
                }
                let mut buffer = self.lock();
                if let Err(error) = flush(socket, &mut buffer) {
                    return error;
                }
                if buffer.len() <= HIGH {
                    self.drained.notify_waiters();
                }
                if buffer.is_empty() {
                    break;
                }
            }
        }
    }

    /// Lets everybody who waits for room go; used when the connection has ended.
    pub(super) fn release(&self) {
        self.lock().clear();
        self.drained.notify_waiters();
    }

    fn lock(&self) -> MutexGuard<'_, Vec<u8>> {
        self.buffer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes as much as the socket takes now.
fn flush(socket: &UnixStream, buffer: &mut Vec<u8>) -> io::Result<()> {
    let mut written = 0;
    let result = loop {
        if written == buffer.len() {
            break Ok(());
        }
        match socket.try_write(&buffer[written..]) {
            Ok(count) => written += count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break Ok(()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break Err(error),
        }
    };
    buffer.drain(..written);
    result
}
