//! Watches a client's HTTP/1.1 bytes for messages that name their length twice.
//!
//! Our reader takes such a message by its chunks and forgets the other length, so that nothing can be smuggled past it;
//! but who sends one is up to no good, or broken, and is told so. This only looks: what is passed on is not changed.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// A head or line that is longer is refused by the reader itself.
const MAX_HELD: usize = 64 << 10;

/// A stream whose messages are watched.
pub(super) struct Watched<S> {
    stream: S,
    watch: Watch,
    ambiguous: Arc<AtomicBool>,
}

/// Follows messages from one head to the next.
#[derive(Debug, Default)]
struct Watch {
    state: State,
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Head,
    /// So many bytes of a body, or of a chunk with its line end.
    Bytes {
        left: u64,
        chunked: bool,
    },
    ChunkSize,
    Trailers,
    /// It is no HTTP any more, or none that can be read: the reader refuses it.
    Off,
}

impl<S> Watched<S> {
    /// `ambiguous` becomes true with the first such message.
    pub(super) fn new(stream: S, ambiguous: Arc<AtomicBool>) -> Self {
        Self { stream, watch: Watch::default(), ambiguous }
    }
}

impl Watch {
    /// Takes what was read; whether a message in it names its length twice.
    fn take(&mut self, mut bytes: &[u8]) -> bool {
        let mut ambiguous = false;
        while !bytes.is_empty() {
            match self.state {
                State::Off => return ambiguous,
                // No head begins like this, but frames of a WebSocket do.
                State::Head if self.held.is_empty() && !begins_head(bytes[0]) => {
                    self.state = State::Off;
                }
                State::Bytes { left, chunked } => {
                    let taken = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
                    bytes = &bytes[taken..];
                    self.state = match left - taken as u64 {
                        0 if chunked => State::ChunkSize,
                        0 => State::Head,
                        left => State::Bytes { left, chunked },
                    };
                }
                State::Head | State::ChunkSize | State::Trailers => {
                    let end = bytes.iter().position(|byte| *byte == b'\n');
                    let taken = end.map_or(bytes.len(), |end| end + 1);
                    self.held.extend_from_slice(&bytes[..taken]);
                    bytes = &bytes[taken..];
                    if self.held.len() > MAX_HELD {
                        self.state = State::Off;
                    } else if end.is_some() {
                        ambiguous |= self.line();
                    }
                }
            }
        }
        ambiguous
    }

    /// A line is complete; in a head, it is kept until the head is.
    fn line(&mut self) -> bool {
        let empty = |line: &[u8]| line.iter().all(|byte| matches!(byte, b'\r' | b'\n'));
        match self.state {
            State::Head if empty(&self.held) => self.held.clear(),
            State::Head => {
                if self.held.ends_with(b"\n\n") || self.held.ends_with(b"\n\r\n") {
                    let head = std::mem::take(&mut self.held);
                    return self.head(&String::from_utf8_lossy(&head));
                }
            }
            State::ChunkSize => {
                let line = std::mem::take(&mut self.held);
                let line = String::from_utf8_lossy(&line);
                let size = line.split([';', '\r', '\n']).next().unwrap_or_default().trim();
                self.state = match u64::from_str_radix(size, 16) {
                    Ok(0) => State::Trailers,
                    Ok(size) => State::Bytes { left: size.saturating_add(2), chunked: true },
                    Err(_) => State::Off,
                };
            }
            State::Trailers => {
                if empty(&std::mem::take(&mut self.held)) {
                    self.state = State::Head;
                }
            }
            State::Bytes { .. } | State::Off => {}
        }
        false
    }

    fn head(&mut self, head: &str) -> bool {
        let values = |wanted: &str| {
            let fields = head.lines().skip(1).filter_map(|line| line.split_once(':'));
            let found = fields.filter(|(name, _)| name.trim().eq_ignore_ascii_case(wanted));
            found.map(|(_, value)| value.trim().to_owned()).collect::<Vec<_>>()
        };
        let (lengths, codings) = (values("content-length"), values("transfer-encoding"));
        // One that asks for another protocol may be refused it, and be followed by the next.
        self.state = if !codings.is_empty() {
            State::ChunkSize
        } else {
            match lengths.first().map(|length| length.parse::<u64>()) {
                None | Some(Ok(0)) => State::Head,
                Some(Ok(left)) => State::Bytes { left, chunked: false },
                Some(Err(_)) => State::Off,
            }
        };
        !lengths.is_empty() && !codings.is_empty()
    }
}

fn begins_head(byte: u8) -> bool {
    byte.is_ascii_graphic() || matches!(byte, b'\r' | b'\n')
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.watch.take(&buffer.filled()[before..]) {
            self.ambiguous.store(true, Ordering::Relaxed);
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
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
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the bytes are cut.
    fn check(text: &str, ambiguous: bool) {
        for size in [1, 2, 3, 7, text.len()] {
            let mut watch = Watch::default();
            let found =
                text.as_bytes().chunks(size).fold(false, |all, bytes| all | watch.take(bytes));
            assert_eq!(found, ambiguous, "{text:?} by {size}");
        }
    }

    const BOTH: &str =
        "POST / HTTP/1.1\r\ncontent-length: 3\r\nTransfer-Encoding : chunked\r\n\r\n";
    const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    #[test]
    fn messages_that_name_their_length_twice_are_seen_wherever_they_are() {
        check(BOTH, true);
        check(GET, false);
        check(&format!("{GET}{BOTH}"), true);
        check(&format!("POST / HTTP/1.1\r\ncontent-length: 5\r\n\r\nabcde{BOTH}"), true);
        let chunks = "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nx: y\r\n\r\n";
        check(chunks, false);
        check(&format!("{chunks}\r\n{BOTH}"), true);
        check(&BOTH.replace("\r\n", "\n"), true);
    }

    #[test]
    fn bodies_are_not_mistaken_for_heads() {
        let length = BOTH.len();
        check(&format!("POST / HTTP/1.1\r\ncontent-length: {length}\r\n\r\n{BOTH}{GET}"), false);
        check(
            &format!(
                "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{length:x}\r\n{BOTH}\r\n0\r\n\r\n"
            ),
            false,
        );
        let upgrade = "GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
        check(&format!("{upgrade}\u{1}{BOTH}"), false);
        check(&format!("{upgrade}{BOTH}"), true);
    }
}
