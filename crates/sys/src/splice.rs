//! Moving bytes between sockets without copying them through user space.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// A pipe that bytes are moved through. Never blocks.
#[derive(Debug)]
pub struct Pipe {
    reader: OwnedFd,
    writer: OwnedFd,
    held: usize,
    capacity: usize,
}

impl Pipe {
    /// A pipe for about `capacity` bytes; less where the kernel's limit for this user is reached.
    pub fn new(capacity: usize) -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let capacity = match fcntl_setpipe_size(&writer, capacity) {
            Ok(size) => size,
            Err(_) => rustix::pipe::fcntl_getpipe_size(&writer)?,
        };
        Ok(Self { reader, writer, held: 0, capacity })
    }

    /// Takes up to `most` bytes from a socket. Zero is the end of the stream, `WouldBlock` that there is nothing yet.
    ///
    /// # Errors
    /// `InvalidInput` while the pipe is not empty: a full pipe and an empty socket could not be told apart.
    pub fn fill(&mut self, from: impl AsFd, most: usize) -> io::Result<usize> {
        if self.held != 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let most = most.min(self.capacity);
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        self.held = splice(from, None, &self.writer, None, most, flags)?;
        Ok(self.held)
    }

    /// Gives what it holds to a socket; `WouldBlock` while that takes nothing.
    pub fn drain(&mut self, to: impl AsFd) -> io::Result<usize> {
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let moved = splice(&self.reader, None, to, None, self.held, flags)?;
        self.held -= moved;
        Ok(moved)
    }

    /// Bytes in it.
    #[must_use]
    pub fn held(&self) -> usize {
        self.held
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{Shutdown, TcpListener, TcpStream};

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn bytes_go_through_and_the_end_is_seen() {
        let (mut source, from) = pair();
        let (mut sink, to) = pair();
        from.set_nonblocking(true).unwrap();
        let mut pipe = Pipe::new(1 << 16).unwrap();
        assert_eq!(pipe.fill(&from, 100).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        source.write_all(b"hello").unwrap();
        from.set_nonblocking(false).unwrap();
        from.peek(&mut [0]).unwrap();
        assert_eq!(pipe.fill(&from, 100).unwrap(), 5);
        assert_eq!(pipe.fill(&from, 100).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(pipe.drain(&to).unwrap(), 5);
        assert_eq!(pipe.held(), 0);
        let mut received = [0; 5];
        sink.read_exact(&mut received).unwrap();
        assert_eq!(&received, b"hello");
        source.shutdown(Shutdown::Write).unwrap();
        assert_eq!(from.peek(&mut [0]).unwrap(), 0);
        assert_eq!(pipe.fill(&from, 100).unwrap(), 0);
    }
}
