//! Room for sockets: so many for the process, so many of them for one sandbox.
//!
//! Every connection takes descriptors that the rest of the server needs, too. No sandbox can have more than half of what
//! all may have, and all together leave a quarter to the others in the process.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

#[derive(Debug)]
pub(crate) struct Room {
    open: AtomicUsize,
    within: Within,
}

#[derive(Debug)]
enum Within {
    Process,
    /// At most so many of those of all.
    All(Arc<Room>, usize),
}

/// A socket's place. Leaving is dropping it.
#[derive(Debug)]
pub(crate) struct Place(Arc<Room>);

impl Room {
    /// For all sandboxes.
    pub(crate) fn of_process() -> Arc<Self> {
        Arc::new(Self { open: AtomicUsize::new(0), within: Within::Process })
    }

    /// For one of them.
    pub(crate) fn of_sandbox(all: Arc<Self>, most: usize) -> Arc<Self> {
        Arc::new(Self { open: AtomicUsize::new(0), within: Within::All(all, most) })
    }

    /// None where it is full.
    pub(crate) fn enter(self: &Arc<Self>) -> Option<Place> {
        self.take().then(|| Place(Arc::clone(self)))
    }

    fn most(&self) -> usize {
        match &self.within {
            // Asked each time: the server raises its limit when it begins to serve.
            Within::Process => belljar_sys::process::descriptor_limit() / 4 * 3,
            Within::All(all, most) => (*most).min(all.most() / 2),
        }
    }

    fn take(&self) -> bool {
        if self.open.fetch_add(1, Ordering::Relaxed) >= self.most() {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        if let Within::All(all, _) = &self.within
            && !all.take()
        {
            self.open.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        true
    }

    fn leave(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        if let Within::All(all, _) = &self.within {
            all.leave();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A connection outwards, and its place.
#[derive(Debug)]
pub(crate) struct Dialled {
    stream: TcpStream,
    _place: Place,
}

impl Dialled {
    pub(super) fn new(stream: TcpStream, place: Place) -> Self {
        Self { stream, _place: place }
    }

    pub(crate) fn stream(&self) -> &TcpStream {
        &self.stream
    }
}

impl AsyncRead for Dialled {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Dialled {
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

    #[test]
    fn one_sandbox_cannot_take_it_all() {
        let all = Room::of_process();
        let greedy = Room::of_sandbox(Arc::clone(&all), usize::MAX);
        let mut places: Vec<Place> = std::iter::from_fn(|| greedy.enter()).collect();
        assert_eq!(places.len(), all.most() / 2);
        let modest = Room::of_sandbox(Arc::clone(&all), 3);
        let few: Vec<Place> = std::iter::from_fn(|| modest.enter()).collect();
        assert_eq!(few.len(), 3);
        places.pop();
        assert!(greedy.enter().is_some());
        drop((places, few));
        assert_eq!(all.open.load(Ordering::Relaxed), 0);
    }
}
