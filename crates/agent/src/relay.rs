//! A way to the agent where the host has no socket in common with it: bytes from standard input go to the agent's own
//! socket, what it answers goes to standard output. Ends with either side.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, shutdown,
    socket_with,
};

/// The name of the agent's own socket. It is not in any directory. The launcher knows it too.
const NAME: &[u8] = b"belljar-agent";

/// Where it is instead for kernels that do not say who connects: in a directory that only a host's user may pass through,
/// which the agent was when it made the socket.
const DOOR: &str = "/run/belljar/host/agent";

const BUFFER: usize = 64 * 1024;

/// How often an agent that does not listen yet is tried, and what is between: 10 s in all.
const ATTEMPTS: usize = 2_000;
const PAUSE: Timespec = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };

pub(crate) fn address(door: bool) -> io::Result<SocketAddrUnix> {
    Ok(if door { SocketAddrUnix::new(DOOR)? } else { SocketAddrUnix::new_abstract_name(NAME)? })
}

pub(crate) fn run(door: bool) -> ExitCode {
    match relay(door) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("belljar-agent: {error}");
            ExitCode::FAILURE
        }
    }
}

fn relay(door: bool) -> io::Result<()> {
    let agent = reach(door)?;
    let (input, output) = (rustix::stdio::stdin(), rustix::stdio::stdout());
    for end in [input, output, agent.as_fd()] {
        rustix::io::ioctl_fionbio(end, true)?;
    }
    let mut to_agent = Flow::new(input, agent.as_fd());
    let mut to_host = Flow::new(agent.as_fd(), output);
    while !to_host.over {
        let mut watched = Vec::new();
        watched.extend(to_agent.waits_for());
        watched.extend(to_host.waits_for());
        match poll(&mut watched, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        to_agent.pass()?;
        if to_agent.over && !std::mem::replace(&mut to_agent.told, true) {
            shutdown(&agent, Shutdown::Write)?;
        }
        to_host.pass()?;
    }
    Ok(())
}

/// A connection to the agent, which may be a moment from listening.
fn reach(door: bool) -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let agent = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    let address = address(door)?;
    for _ in 0..ATTEMPTS {
        match connect(&agent, &address) {
            Err(Errno::CONNREFUSED | Errno::NOENT) => {}
            other => return Ok(other.map(|()| agent)?),
        }
        let _ = poll(&mut [], Some(&PAUSE));
    }
    Err(Errno::CONNREFUSED.into())
}

/// One direction.
struct Flow<'a> {
    from: BorrowedFd<'a>,
    to: BorrowedFd<'a>,
    buffer: Vec<u8>,
    /// What of the buffer is still to be written.
    waiting: std::ops::Range<usize>,
    over: bool,
    /// The other side knows that it is over.
    told: bool,
}

impl<'a> Flow<'a> {
    fn new(from: BorrowedFd<'a>, to: BorrowedFd<'a>) -> Self {
        Self { from, to, buffer: vec![0; BUFFER], waiting: 0..0, over: false, told: false }
    }

    fn waits_for(&self) -> Option<PollFd<'a>> {
        if self.over {
            None
        } else if self.waiting.is_empty() {
            Some(PollFd::from_borrowed_fd(self.from, PollFlags::IN))
        } else {
            Some(PollFd::from_borrowed_fd(self.to, PollFlags::OUT))
        }
    }

    /// Passes on what there is, as far as it goes without waiting.
    fn pass(&mut self) -> io::Result<()> {
        while !self.over {
            if self.waiting.is_empty() {
                match rustix::io::read(self.from, &mut self.buffer[..]) {
                    Ok(0) => self.over = true,
                    Ok(size) => self.waiting = 0..size,
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return Ok(()),
                    Err(errno) => return Err(errno.into()),
                }
            } else {
                let bytes = self.buffer.get(self.waiting.clone()).unwrap_or_default();
                match rustix::io::write(self.to, bytes) {
                    Ok(size) => self.waiting.start += size,
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => return Ok(()),
                    Err(errno) => return Err(errno.into()),
                }
            }
        }
        Ok(())
    }
}
