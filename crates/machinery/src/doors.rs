//! The doors of a sandbox, as the launcher hands them out.

use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;

use belljar_backend::{Doors, Error};
use belljar_codes::Code;
use belljar_launcher::wire::{Door, DoorKind, Failure};
use rustix::io::Errno;

use crate::explain::{NFTABLES, VETH};

/// Puts each socket where it belongs. The launcher sends one per door.
pub(crate) fn sort(kinds: &[Door], sockets: Vec<OwnedFd>) -> Doors {
    let mut doors = Doors::default();
    for (door, socket) in kinds.iter().zip(sockets) {
        match door.kind {
            DoorKind::Tcp => doors.tcp.push(TcpListener::from(socket)),
            DoorKind::DnsTcp => doors.dns_tcp.push(TcpListener::from(socket)),
            DoorKind::DnsUdp => doors.dns_udp.push(UdpSocket::from(socket)),
            DoorKind::Udp => doors.udp.push((door.port, UdpSocket::from(socket))),
            DoorKind::Proxy => doors.proxy.push(TcpListener::from(socket)),
        }
    }
    doors
}

/// Why a sandbox has no network.
pub(crate) fn explain(failure: &Failure) -> Error {
    let errno = Errno::from_raw_os_error(failure.errno);
    let (code, remedy) = match (failure.stage.as_str(), errno) {
        ("find-sandbox", _) => (Code::SandboxGone, "it has ended; create a new one"),
        (_, Errno::NOSPC | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => {
            (Code::HostExhausted, "destroy sandboxes that are no longer needed")
        }
        ("gateway-filter", _) => (Code::HostUnsupported, NFTABLES),
        ("gateway-link", _) => (Code::HostUnsupported, VETH),
        _ => (Code::StartFailed, "`belljar doctor` checks what this host can do"),
    };
    Error::new(code, "the network of the sandbox could not be made")
        .with_source(failure.clone())
        .with_remedy(remedy)
}
