//! Doors of a sandbox that runs: made by a child, because whoever makes them moves into the sandbox's network.

use std::os::fd::{AsFd, OwnedFd};

use belljar_sys::process::{self, Forked};
use belljar_sys::{message, mount, namespace};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use crate::failure::{Result, Stage};
use crate::gateway;
use crate::place::{self, Identity, check_id};
use crate::serve::Launcher;
use crate::wire::{AGENT_SOCKET, Answer, Door, Failure};

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
        begin(users.as_ref(), &network, udp_ports)
    }
}

/// Begins to make the gateway of a network namespace that somebody else made and that nobody else gives links to.
pub(crate) fn make_doors_of(network: &OwnedFd, udp_ports: &[u16]) -> Result<Maker> {
    gateway::check_ports(udp_ports)?;
    refuse_own(network)?;
    begin(None, network, udp_ports)
}

/// Whatever is asked: never this host's own network, whose links a gateway would take away.
fn refuse_own(network: &OwnedFd) -> Result<()> {
    let identity = |file: &OwnedFd| mount::file_identity(file).stage("namespace");
    let own = namespace::network().stage("namespace")?;
    if identity(&own)? == identity(network)? {
        return Err(Failure::new("namespace", Errno::PERM.raw_os_error()));
    }
    Ok(())
}

/// Connects to the agent that has a socket of its own in a network namespace. A child does it, because whoever makes the
/// socket must be there; it takes less than a millisecond, or is refused.
pub(crate) fn connect_of(network: &OwnedFd) -> Result<OwnedFd> {
    refuse_own(network)?;
    let (ours, theirs) = message::pair().stage("connect")?;
    match process::fork().stage("connect")? {
        Forked::Parent { pidfd, .. } => {
            drop(theirs);
            let mut buffer = vec![0; message::MAX_MESSAGE];
            let received = message::receive(&ours, &mut buffer);
            process::wait(pidfd.as_fd());
            let (length, sockets) = received.stage("connect")?;
            match postcard::from_bytes(&buffer[..length]) {
                Ok(Answer::Failed(failure)) => Err(failure),
                _ => sockets
                    .into_iter()
                    .next()
                    .ok_or_else(|| Failure::new("connect", Errno::PROTO.raw_os_error())),
            }
        }
        Forked::Child => {
            drop(ours);
            let (answer, socket) = match connect_from_inside(network) {
                Ok(socket) => (Answer::Connected, Some(socket)),
                Err(failure) => (Answer::Failed(failure), None),
            };
            let bytes = postcard::to_stdvec(&answer).unwrap_or_default();
            let sockets: Vec<_> = socket.iter().map(AsFd::as_fd).collect();
            let _ = message::send(&theirs, &bytes, &sockets);
            std::process::exit(0);
        }
    }
}

fn connect_from_inside(network: &OwnedFd) -> Result<OwnedFd> {
    namespace::join_network(network.as_fd()).stage("join-namespace")?;
    // Where too many wait to be let in, the answer is that, and not to wait too.
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None);
    let socket = socket.stage("connect")?;
    let address = SocketAddrUnix::new_abstract_name(AGENT_SOCKET).stage("connect")?;
    connect(&socket, &address).stage("connect")?;
    Ok(socket)
}

fn begin(users: Option<&OwnedFd>, network: &OwnedFd, udp_ports: &[u16]) -> Result<Maker> {
    let (ours, theirs) = message::pair().stage("gateway")?;
    match process::fork().stage("gateway")? {
        Forked::Parent { pidfd, .. } => Ok(Maker { socket: ours, pidfd }),
        Forked::Child => {
            drop(ours);
            let users = users.map(AsFd::as_fd);
            let made = gateway::build_for(users, network.as_fd(), udp_ports);
            send(&theirs, made);
            std::process::exit(0);
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
