//! Doors of a sandbox that runs: made by a child, because whoever makes them moves into the sandbox's network.

use std::os::fd::{AsFd, OwnedFd};

use belljar_sys::message;
use belljar_sys::process::{self, Forked};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::failure::{Result, Stage};
use crate::gateway;
use crate::place::{self, Identity, check_id};
use crate::serve::Launcher;
use crate::wire::{Answer, Door, Failure};

/// A child that makes a gateway.
pub(crate) struct Maker {
    pub(crate) socket: OwnedFd,
    pidfd: OwnedFd,
}

/// The doors of a sandbox with their sockets, in the same order.
pub(crate) type Doors = (Vec<Door>, Vec<OwnedFd>);

impl Launcher {
    /// Begins to make the gateway of a sandbox that runs.
    pub(crate) fn make_doors(&self, id: &str, udp_ports: &[u16]) -> Result<Maker> {
        check_id(id)?;
        gateway::check_ports(udp_ports)?;
        let gone = || Failure::new("find-sandbox", Errno::SRCH.raw_os_error());
        let sandbox = self.place.open_sandbox(id).stage("find-sandbox")?;
        let identity = Identity::read(&sandbox).ok_or_else(gone)?;
        let process = place::read_process(&sandbox).ok_or_else(gone)?;
        let namespace = |name: &str| -> Result<OwnedFd> {
            let path = format!("/proc/{}/ns/{name}", process.pid);
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .stage("namespace")
        };
        // Without privilege the sandbox's own user namespace is where there is power over its network.
        let users = if identity.range.is_none() { Some(namespace("user")?) } else { None };
        let network = namespace("net")?;
        // Asked after opening, so that these are this process's and not a later one's of the same number.
        process.open().ok_or_else(gone)?;
        let (ours, theirs) = message::pair().stage("gateway")?;
        match process::fork().stage("gateway")? {
            Forked::Parent { pidfd, .. } => Ok(Maker { socket: ours, pidfd }),
            Forked::Child => {
                drop(ours);
                let users = users.as_ref().map(AsFd::as_fd);
                let made = gateway::build_for(users, network.as_fd(), udp_ports);
                send(&theirs, made);
                std::process::exit(0);
            }
        }
    }
}

impl Maker {
    /// What the child made.
    pub(crate) fn collect(self) -> Result<Doors> {
        let mut buffer = vec![0; message::MAX_MESSAGE];
        let received = message::receive(&self.socket, &mut buffer);
        process::wait(self.pidfd.as_fd());
        let (length, sockets) = received.stage("gateway")?;
        receive(&buffer[..length], sockets)
    }
}

/// Tells what was made, with its sockets.
fn send(socket: &OwnedFd, made: Result<Doors>) {
    let (answer, sockets) = match made {
        Ok((doors, sockets)) => (Answer::Doors(doors), sockets),
        Err(failure) => (Answer::Failed(failure), Vec::new()),
    };
    let bytes = postcard::to_stdvec(&answer).unwrap_or_default();
    let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
    // Nobody there to take them: they close, and the gateway is gone.
    let _ = message::send(socket, &bytes, &sockets);
}

fn receive(bytes: &[u8], sockets: Vec<OwnedFd>) -> Result<Doors> {
    match postcard::from_bytes(bytes) {
        Ok(Answer::Doors(doors)) if doors.len() == sockets.len() => Ok((doors, sockets)),
        Ok(Answer::Failed(failure)) => Err(failure),
        _ => Err(Failure::new("gateway", Errno::PROTO.raw_os_error())),
    }
}
