//! The sweeper: a child that takes apart what is no longer needed, so that nobody waits for it.
//!
//! Letting go of a mount namespace unmounts a disk and dozens of mounts, which takes longer than everything else in the
//! end of a sandbox. The launcher holds the namespace across the death of the sandbox's last process, hands it to the
//! sweeper, and answers. Files that were moved out of sight are removed here too.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use belljar_sys::message;
use belljar_sys::process::{self, Forked};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::failure::{Result, Stage};
use crate::place::Place;

/// The same for everything: a message with a descriptor is about that, one without about the trash.
const MESSAGE: &[u8] = b"s";

/// What has arrived waits this long: whoever has just ended a sandbox often wants the next one, and taking the old one apart
/// would slow down making it.
const PAUSE: Duration = Duration::from_millis(20);

pub(crate) struct Sweeper {
    socket: OwnedFd,
    pidfd: OwnedFd,
}

impl Sweeper {
    pub(crate) fn start(place: &Place) -> Result<Self> {
        let (ours, theirs) = message::pair().stage("sweeper")?;
        match process::fork().stage("sweeper")? {
            Forked::Parent { pidfd, .. } => Ok(Self { socket: ours, pidfd }),
            Forked::Child => {
                drop(ours);
                let _ = rustix::process::setpriority_process(None, crate::helper::BACKGROUND);
                while place.empty_trash_once() {}
                sweep(&theirs, place);
                std::process::exit(0);
            }
        }
    }

    /// Hands over what is to be let go. Should the sweeper be gone, that happens here.
    pub(crate) fn take(&self, held: OwnedFd) {
        let _ = message::send(&self.socket, MESSAGE, &[held.as_fd()]);
    }

    /// Has the trash emptied. Should the sweeper be gone, it happens here.
    pub(crate) fn empty_trash(&self, place: &Place) {
        if message::send(&self.socket, MESSAGE, &[]).is_err() {
            while place.empty_trash_once() {}
        }
    }

    /// Waits until everything handed over is gone.
    pub(crate) fn finish(self) {
        drop(self.socket);
        process::wait(self.pidfd.as_fd());
    }
}

/// Takes apart what arrives until nothing can come any more.
fn sweep(socket: &OwnedFd, place: &Place) {
    let mut buffer = [0; 8];
    let mut next = || match message::receive(socket, &mut buffer) {
        Ok((1.., held)) => Some(held),
        _ => None,
    };
    while let Some(first) = next() {
        wait(socket, PollFlags::RDHUP, PAUSE);
        let mut held = Some(first);
        while let Some(one) = held {
            if one.is_empty() {
                while place.empty_trash_once() {}
            }
            // With it goes what it held.
            drop(one);
            held = if wait(socket, PollFlags::IN, Duration::ZERO) { next() } else { None };
        }
    }
}

/// Whether it has come to that within the time.
fn wait(socket: &OwnedFd, what: PollFlags, patience: Duration) -> bool {
    let patience = Timespec { tv_sec: 0, tv_nsec: patience.subsec_nanos().into() };
    poll(&mut [PollFd::new(socket, what)], Some(&patience)).is_ok_and(|ready| ready > 0)
}
