//! The first bytes of a connection, which say what protocol it speaks, must come in time.
//!
//! Whoever recognises the protocol waits for them without end, and the protocol's own bounds begin only after that.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// What every HTTP/2 connection begins with. Anything that differs from it is HTTP/1.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// A connection that fails when it is not known in time what it speaks.
pub(crate) struct Opening<S, G> {
    stream: S,
    /// What is taken as long as the connection lasts, also where it goes on in another protocol.
    _held: G,
    /// `None` once that is known.
    unknown: Option<Unknown>,
}

struct Unknown {
    /// Bytes of the preface so far.
    matched: usize,
    deadline: Pin<Box<Sleep>>,
}

impl<S, G> Opening<S, G> {
    pub(crate) fn new(stream: S, time: Duration, held: G) -> Self {
        let deadline = Box::pin(tokio::time::sleep(time));
        Self { stream, _held: held, unknown: Some(Unknown { matched: 0, deadline }) }
    }
}

impl Unknown {
    /// Whether it is known now.
    fn learn(&mut self, bytes: &[u8]) -> bool {
        let expected = &PREFACE[self.matched..];
        let count = bytes.len().min(expected.len());
        self.matched += count;
        bytes[..count] != expected[..count] || self.matched == PREFACE.len()
    }
}

impl<S: AsyncRead + Unpin, G: Unpin> AsyncRead for Opening<S, G> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        let Some(unknown) = &mut self.unknown else { return polled };
        if polled.is_pending() {
            let late = unknown.deadline.as_mut().poll(context);
            return late.map(|()| Err(io::ErrorKind::TimedOut.into()));
        }
        if unknown.learn(&buffer.filled()[before..]) {
            self.unknown = None;
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin, G: Unpin> AsyncWrite for Opening<S, G> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Whether a connection that began with `bytes` and then says nothing is let go of.
    async fn is_let_go(bytes: &[u8]) -> bool {
        let (mut client, server) = tokio::io::duplex(1024);
        client.write_all(bytes).await.unwrap();
        let mut opening = Opening::new(server, Duration::from_secs(5), ());
        let mut read = Vec::new();
        let whole = opening.read_to_end(&mut read);
        matches!(tokio::time::timeout(Duration::from_secs(60), whole).await, Ok(Err(_)))
    }

    #[tokio::test(start_paused = true)]
    async fn only_who_is_unknown_is_let_go() {
        assert!(is_let_go(b"").await);
        assert!(is_let_go(b"PRI * HTTP/2.0\r\n").await);
        assert!(!is_let_go(PREFACE).await);
        assert!(!is_let_go(b"GET").await);
        assert!(!is_let_go(b"POST").await);
    }
}
