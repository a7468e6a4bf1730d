//! Options of sockets that the standard library does not know.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Lets a socket send from addresses that are not this host's own, and take packets to them.
pub fn set_transparent(socket: impl AsFd, version: Version) -> io::Result<()> {
    match version {
        Version::V4 => set(socket, libc::IPPROTO_IP, libc::IP_TRANSPARENT),
        Version::V6 => set(socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT),
    }
}

/// Has the kernel say with each datagram where it was sent to.
pub fn set_packet_information(socket: impl AsFd, version: Version) -> io::Result<()> {
    match version {
        Version::V4 => set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO),
        Version::V6 => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
    }
}

/// The user of whoever connected a local socket, as this process's user namespace has it.
///
/// Unlike rustix's, also for peers that this process has no number for.
pub fn peer_user(socket: impl AsFd) -> io::Result<u32> {
    let mut peer = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut size = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: both pointers lead to live values, and the size is that of the first; the kernel writes no more than it.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            std::ptr::from_mut(&mut peer).cast(),
            &raw mut size,
        )
    };
    if result == 0 { Ok(peer.uid) } else { Err(io::Error::last_os_error()) }
}

/// Versions of the Internet Protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    V4,
    V6,
}

fn set(socket: impl AsFd, level: i32, option: i32) -> io::Result<()> {
    let on: libc::c_int = 1;
    // SAFETY: the pointer leads to a live integer of the size given, which the kernel copies during the call.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            option,
            std::ptr::from_ref(&on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
