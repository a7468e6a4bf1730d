//! A Unix stream socket that wakes nobody for nothing.
//!
//! Whoever watches a Unix socket for room is woken whenever the other side has read, and tokio's streams always watch for
//! that: every request wakes its client once more before the answer, every answer its server. A [`Socket`] watches for
//! what can be read, and for room only while it has none.

#![forbid(unsafe_code)]

mod near;

use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use tokio::io::{AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::time::{Sleep, sleep};

pub use near::{near, parent};

#[derive(Debug)]
pub struct Socket {
    /// Watched for what can be read.
    stream: AsyncFd<UnixStream>,
    /// From when there was no room until there is.
    full: Option<Full>,
}

/// How it is found out that there may be room again.
#[derive(Debug)]
enum Full {
    /// By the same socket, watched for it.
    Watched(AsyncFd<UnixStream>),
    /// By trying again: watching takes a descriptor, and there is none.
    Unwatched(Pin<Box<Sleep>>),
}

/// How often is tried again what cannot be watched.
const TRY_AGAIN: Duration = Duration::from_millis(50);

/// What is read at once through a buffer that has to be cleared first.
const MOST_CLEARED: usize = 64 << 10;

impl Socket {
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self { stream: watch(stream, Interest::READABLE)?, full: None })
    }

    /// Waits for bytes and adds as many as there are to the buffer, which has room for some. None: the other side has ended.
    pub async fn receive(&self, buffer: &mut Vec<u8>) -> io::Result<usize> {
        debug_assert!(buffer.len() < buffer.capacity());
        loop {
            let mut ready = self.stream.readable().await?;
            let room = buffer.capacity() - buffer.len();
            let read = |stream: &UnixStream| {
                Ok(rustix::io::read(stream, rustix::buffer::spare_capacity(buffer))?)
            };
            if let Some(count) = attempt(&mut ready, room, read)? {
                return Ok(count);
            }
        }
    }

    /// Sends as much as there is room for now.
    pub fn try_send(&self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.get_ref().write(bytes)
    }

    /// Waits until there may be room.
    pub async fn room(&self) -> io::Result<()> {
        match self.watch_for_room() {
            Full::Watched(full) => full.writable().await.map(drop),
            Full::Unwatched(sleep) => {
                sleep.await;
                Ok(())
            }
        }
    }

    fn watch_for_room(&self) -> Full {
        let watched =
            self.stream.get_ref().try_clone().and_then(|same| watch(same, Interest::WRITABLE));
        match watched {
            Ok(watched) => Full::Watched(watched),
            Err(_) => Full::Unwatched(Box::pin(sleep(TRY_AGAIN))),
        }
    }

    fn poll_send(
        &mut self,
        context: &mut Context<'_>,
        send: impl Fn(&mut &UnixStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            let ready = match &mut self.full {
                Some(Full::Watched(full)) => Some(ready!(full.poll_write_ready(context))?),
                Some(Full::Unwatched(sleep)) => {
                    ready!(sleep.as_mut().poll(context));
                    None
                }
                None => None,
            };
            match send(&mut self.stream.get_ref()) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => match ready {
                    Some(mut ready) => ready.clear_ready(),
                    None => self.full = Some(self.watch_for_room()),
                },
                sent => {
                    self.full = None;
                    return Poll::Ready(sent);
                }
            }
        }
    }
}

fn watch(stream: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    #[expect(
        deprecated,
        reason = "its successor is unsafe for types that may lie; UnixStream cannot"
    )]
    AsyncFd::with_interest(stream, interest)
}

/// Reads if there is something; `None`: not yet. What fills less than the room that it was given was all there is.
fn attempt(
    ready: &mut AsyncFdReadyGuard<'_, UnixStream>,
    room: usize,
    mut read: impl FnMut(&UnixStream) -> io::Result<usize>,
) -> io::Result<Option<usize>> {
    match ready.try_io(|stream| read(stream.get_ref())) {
        Ok(Err(error)) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
        Ok(Ok(count)) => {
            if 0 < count && count < room {
                ready.clear_ready();
            }
            Ok(Some(count))
        }
        Ok(Err(error)) => Err(error),
        Err(_would_block) => Ok(None),
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.stream.poll_read_ready(context))?;
            let room = buffer.initialize_unfilled_to(buffer.remaining().min(MOST_CLEARED));
            if let Some(count) =
                attempt(&mut ready, room.len(), |mut stream| Read::read(&mut stream, room))?
            {
                buffer.advance(count);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, |stream| stream.write(bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_send(context, |stream| stream.write_vectored(slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.stream.get_ref().shutdown(Shutdown::Write))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    fn pair() -> (Socket, Socket) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        (Socket::new(ours).unwrap(), Socket::new(theirs).unwrap())
    }

    #[tokio::test]
    async fn more_than_there_is_room_for_arrives_whole() {
        let (mut ours, mut theirs) = pair();
        let sent: Vec<u8> = (0..4_000_000u32).map(|number| (number % 251) as u8).collect();
        let expected = sent.clone();
        let writer = tokio::spawn(async move {
            ours.write_all(&sent).await.unwrap();
            assert!(ours.full.is_none());
            ours.shutdown().await.unwrap();
            ours
        });
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).await.unwrap();
        assert!(got == expected);
        // The other way is still open.
        theirs.write_all(b"seen").await.unwrap();
        let mut answer = [0; 4];
        writer.await.unwrap().read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"seen");
    }

    /// Sends as much as there is room for; how much that is.
    fn fill(socket: &Socket) -> usize {
        let block = [7; 64 << 10];
        let mut sent = 0;
        loop {
            match socket.try_send(&block) {
                Ok(count) => sent += count,
                Err(error) => {
                    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
                    return sent;
                }
            }
        }
    }

    /// Takes as much as was sent.
    async fn take(socket: &Socket, sent: usize) {
        let (mut got, mut buffer) = (0, Vec::with_capacity(100_000));
        while got < sent {
            buffer.clear();
            got += socket.receive(&mut buffer).await.unwrap();
        }
        assert_eq!(got, sent);
    }

    #[tokio::test]
    async fn by_reference_too() {
        let (ours, theirs) = pair();
        let sent = fill(&ours);
        let (room, ()) = tokio::join!(ours.room(), take(&theirs, sent));
        room.unwrap();
        drop(ours);
        assert_eq!(theirs.receive(&mut Vec::with_capacity(1)).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn goes_on_without_a_descriptor_to_watch() {
        let (mut ours, theirs) = pair();
        let sent = fill(&ours);
        ours.full = Some(Full::Unwatched(Box::pin(sleep(TRY_AGAIN))));
        let (written, ()) = tokio::join!(ours.write_all(b"more"), async {
            // Once for nothing.
            sleep(TRY_AGAIN * 3 / 2).await;
            take(&theirs, sent + 4).await;
        });
        written.unwrap();
        assert!(ours.full.is_none());
    }

    /// Whether anything in this process watches a socket for room, by any of its descriptors.
    fn is_watched_for_room(socket: impl AsFd) -> bool {
        let inode = rustix::fs::fstat(socket).unwrap().st_ino;
        let is_it = |number: &str| {
            std::fs::metadata(format!("/proc/self/fd/{number}"))
                .is_ok_and(|file| std::os::unix::fs::MetadataExt::ino(&file) == inode)
        };
        let watches = |line: &str| {
            let words: Vec<_> = line.split_whitespace().collect();
            let ["tfd:", number, "events:", events, ..] = words[..] else { return false };
            let room = rustix::event::epoll::EventFlags::OUT.bits();
            u32::from_str_radix(events, 16).unwrap() & room != 0 && is_it(number)
        };
        std::fs::read_dir("/proc/self/fdinfo")
            .unwrap()
            .filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok())
            .any(|text| text.lines().any(watches))
    }

    #[tokio::test]
    async fn room_is_watched_for_only_while_there_is_none() {
        let (mut ours, theirs) = pair();
        assert!(!is_watched_for_room(&ours));
        let (plain, _other) = tokio::net::UnixStream::pair().unwrap();
        assert!(is_watched_for_room(&plain), "what this is for");

        let mut sent = 0;
        let block = [7; 64 << 10];
        let full = std::future::poll_fn(|context| {
            loop {
                match Pin::new(&mut ours).poll_write(context, &block) {
                    Poll::Ready(count) => sent += count.unwrap(),
                    Poll::Pending => return Poll::Ready(is_watched_for_room(&ours)),
                }
            }
        });
        assert!(full.await);
        take(&theirs, sent).await;
        ours.write_all(b"more").await.unwrap();
        assert!(!is_watched_for_room(&ours));
    }
}
