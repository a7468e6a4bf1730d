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
