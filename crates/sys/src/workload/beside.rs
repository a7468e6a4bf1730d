//! A child that starts in the memory of its parent while the parent goes on.
//!
//! In kernels where a copy of memory is dear, and for parents that nobody may hold up: the child may be stopped on its way, or
//! hang in a file system that does not answer. What it reads stays until it has left, and is leaked rather than freed too
//! early. That it has left is told by its status pipe, of which it has the only writing end: the kernel closes that at
//! `exec` and at the end of a process, when nothing reads the old memory any more. (The word of [`guest`] is not
//! enough: gVisor's kernel does not clear it at `exec`.)

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Pid;

use super::{Confinement, Ends, Planned, Streams, child};
use crate::guest::{self, Guest};
use crate::uapi;

/// What a child was started with, for as long as it may read it.
#[derive(Debug)]
pub struct Beside {
    guest: Guest<Given>,
    status: OwnedFd,
}

#[derive(Debug)]
struct Given {
    planned: Planned,
    confinement: Rc<Confinement>,
    ends: Ends,
}

impl Planned {
    /// Starts the child and goes on at once. Besides its number and what it reads, the caller gets the reading end of its
    /// status pipe, which does not block.
    ///
    /// Preconditions: no signal that has a handler reaches the child (see [`guest::spawn`]).
    pub fn spawn_beside(
        self,
        confinement: Rc<Confinement>,
        streams: Streams<'_>,
    ) -> io::Result<(Pid, OwnedFd, Beside)> {
        let (status, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        let reader = status.try_clone()?;
        // Numbers suffice: the child has copies of its own under the same ones.
        let ends = Ends::new(streams, writer.as_fd());
        let arguments =
            uapi::CloneArgs { exit_signal: libc::SIGCHLD as u64, ..uapi::CloneArgs::default() };
        let given = Given { planned: self, confinement, ends };
        let (pid, guest) = guest::spawn(arguments, given, |given| {
            child::run(&given.planned, &given.confinement, given.ends)
        })?;
        Ok((Pid::from_raw(pid).expect("positive"), reader, Beside { guest, status }))
    }
}

impl Beside {
    /// Whether the child has become the program, or ended.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let mut watched = [PollFd::new(&self.status, PollFlags::IN)];
        let ready = poll(&mut watched, Some(&at_once));
        ready.is_ok() && watched[0].revents().contains(PollFlags::HUP)
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if self.has_left() {
            self.guest.release();
        }
    }
}
