//! Bytes in both directions, as the other side sends them: backpressure, half-close and reset are passed on.
//!
//! An idle connection holds no buffer. A busy one copies through a small buffer, and a bulk transfer goes through a
//! pipe in the kernel, of which there is a bounded number for all sandboxes. However fast both sides are, a transfer
//! gives way to others now and then, and ends with the first look after its permission ended.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use belljar_sys::splice::Pipe;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::timeout;

use crate::Reason;
use crate::flow::{Direction, Permit};

/// From here on a transfer is bulk.
const BULK: u64 = 256 * 1024;
const CHUNK: usize = 16 * 1024;
const PIPE: usize = 256 * 1024;
/// A bulk transfer that pauses for longer gives its pipe back.
const PAUSE: Duration = Duration::from_secs(1);
/// Pipes of the process; a user without privilege may have 1024 of 64 KiB.
static PIPES: Semaphore = Semaphore::const_new(64);
/// A connection on which nothing moves for this long is cut.
const IDLE: Duration = Duration::from_secs(2 * 3600);
const IDLE_CHECK: Duration = Duration::from_secs(60);

/// What went through so far.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    pub(crate) up: AtomicU64,
    pub(crate) down: AtomicU64,
}

impl Carried {
    fn total(&self) -> u64 {
        self.up.load(Ordering::Relaxed) + self.down.load(Ordering::Relaxed)
    }
}

/// Why bytes stopped before their end.
#[derive(Debug)]
pub(crate) enum Stopped {
    /// One side broke off; so does the other.
    Broken,
    Refused(Reason),
}

impl From<io::Error> for Stopped {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// Ends when nothing moved for too long.
pub(crate) async fn idle(carried: &Carried) {
    let mut last = carried.total();
    let mut still = Duration::ZERO;
    while still < IDLE {
        tokio::time::sleep(IDLE_CHECK).await;
        let now = carried.total();
        still = if now == last { still + IDLE_CHECK } else { Duration::ZERO };
        last = now;
    }
}

/// Carries one direction to its end, and passes the end on.
pub(crate) async fn carry(
    from: &TcpStream,
    to: &TcpStream,
    permit: &Permit,
    direction: Direction,
    carried: &AtomicU64,
) -> Result<(), Stopped> {
    let mut bulk = 0;
    loop {
        go_on(permit).await?;
        let moved = if bulk < BULK {
            copy(from, to, permit, direction).await?
        } else if let Some(mut pipe) = Channel::open() {
            // Ends with the stream, or when it pauses.
            let ended = pipe.carry(from, to, permit, direction, carried).await?;
            bulk = 0;
            if ended { 0 } else { continue }
        } else {
            bulk = 0;
            continue;
        };
        if moved == 0 {
            belljar_sys::stream::end_writing(to)?;
            return Ok(());
        }
        carried.fetch_add(moved, Ordering::Relaxed);
        bulk += moved;
    }
}

/// Between two moves: gives way where both sides are always ready, and ends what is no longer allowed.
async fn go_on(permit: &Permit) -> Result<(), Stopped> {
    tokio::task::coop::consume_budget().await;
    if permit.token().is_cancelled() {
        return Err(Stopped::Refused(Reason::Revoked));
    }
    Ok(())
}

/// Writes bytes that were read ahead.
pub(crate) async fn give(
    bytes: &[u8],
    to: &TcpStream,
    permit: &Permit,
    direction: Direction,
    carried: &AtomicU64,
) -> Result<(), Stopped> {
    permit
        .count(direction, bytes.len())
        .await
        .map_err(|refusal| Stopped::Refused(refusal.reason))?;
    write(bytes, to).await?;
    carried.fetch_add(bytes.len() as u64, Ordering::Relaxed);
    Ok(())
}

/// Moves once; zero is the end.
async fn copy(
    from: &TcpStream,
    to: &TcpStream,
    permit: &Permit,
    direction: Direction,
) -> Result<u64, Stopped> {
    loop {
        from.readable().await?;
        let size = permit.at_once(direction).unwrap_or(CHUNK).min(CHUNK);
        // Made here and not before: who waits, holds nothing.
        let mut buffer = Vec::with_capacity(size);
        match from.try_read_buf(&mut buffer) {
            Ok(0) => return Ok(0),
            Ok(length) => {
                let counted = permit.count(direction, length).await;
                counted.map_err(|refusal| Stopped::Refused(refusal.reason))?;
                write(&buffer, to).await?;
                return Ok(length as u64);
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

pub(crate) async fn write(mut bytes: &[u8], to: &TcpStream) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.try_write(bytes) {
            Ok(length) => bytes = &bytes[length..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => to.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// A pipe and the right to have one.
struct Channel {
    pipe: Pipe,
    _right: SemaphorePermit<'static>,
}

impl Channel {
    fn open() -> Option<Self> {
        let right = PIPES.try_acquire().ok()?;
        Some(Self { pipe: Pipe::new(PIPE).ok()?, _right: right })
    }

    /// True at the end of the stream, false at a pause.
    async fn carry(
        &mut self,
        from: &TcpStream,
        to: &TcpStream,
        permit: &Permit,
        direction: Direction,
        carried: &AtomicU64,
    ) -> Result<bool, Stopped> {
        loop {
            go_on(permit).await?;
            let most = permit.at_once(direction).unwrap_or(PIPE);
            let filled = from.try_io(Interest::READABLE, || self.pipe.fill(from, most));
            let length = match filled {
                Ok(0) => return Ok(true),
                Ok(length) => length,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    match timeout(PAUSE, from.readable()).await {
                        Ok(ready) => ready?,
                        Err(_) => return Ok(false),
                    }
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let counted = permit.count(direction, length).await;
            counted.map_err(|refusal| Stopped::Refused(refusal.reason))?;
            while self.pipe.held() > 0 {
                match to.try_io(Interest::WRITABLE, || self.pipe.drain(to)) {
                    Ok(_) => {}
                    Err(error) if error.kind() == ErrorKind::WouldBlock => to.writable().await?,
                    Err(error) => return Err(error.into()),
                }
            }
            carried.fetch_add(length as u64, Ordering::Relaxed);
        }
    }
}

/// Breaks a connection off, so that the other side sees a reset and not an end.
pub(crate) fn reset(stream: &TcpStream) {
    // Where it cannot be set, the connection is closed all the same when it is dropped.
    let _ = stream.set_zero_linger();
}
