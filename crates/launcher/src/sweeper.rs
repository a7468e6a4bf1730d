//! The sweeper: a child that takes apart what is no longer needed, so that nobody waits for it.
//!
//! Letting go of a mount namespace unmounts a disk and dozens of mounts, which takes longer than everything else in the
//! end of a sandbox. The launcher holds the namespace across the death of the sandbox's last process, hands it to the
//! sweeper, and answers. Files that were moved out of sight are removed here too.

use std::os::fd::{AsFd, OwnedFd};

use belljar_sys::message;
use belljar_sys::process::{self, Forked};

use crate::failure::{Result, Stage};
use crate::place::Place;

/// The same for everything: a message with a descriptor is about that, one without about the trash.
const MESSAGE: &[u8] = b"s";

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
                let mut buffer = [0; 8];
                while place.empty_trash_once() {}
                // What arrives is dropped right there, and with it goes what it held.
                while let Ok((1.., held)) = message::receive(&theirs, &mut buffer) {
                    if held.is_empty() {
                        while place.empty_trash_once() {}
                    }
                }
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
