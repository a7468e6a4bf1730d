//! Datagrams with the address that they were sent to, and from which the reply must come.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};

/// Room for the control messages that are asked for, aligned as the kernel writes them.
#[repr(C, align(8))]
struct Control([u8; 128]);

/// A received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub length: usize,
    pub from: SocketAddr,
    /// Where it was sent to; the port is the socket's.
    pub to: IpAddr,
}

/// Receives one datagram on a socket that has packet information switched on.
///
/// # Errors
/// `WouldBlock` where there is none; `InvalidData` for one that did not fit, or came without its destination.
pub fn receive(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<Received> {
    let mut control = Control([0; 128]);
    let mut name = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut slice = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeroes are a valid msghdr (null pointers and zero lengths).
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = name.as_mut_ptr().cast();
    header.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = control.0.len() as _;
    // SAFETY: every pointer in the header leads to a live buffer of the length beside it, none is kept by the kernel.
    let length =
        unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, libc::MSG_DONTWAIT) };
    let length = usize::try_from(length).map_err(|_| io::Error::last_os_error())?;
    if header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0 {
        return Err(io::ErrorKind::InvalidData.into());
    }
    // SAFETY: zeroed before, and the kernel wrote an address over it: valid for any address family.
    let name = unsafe { name.assume_init() };
    let from = socket_address(&name).ok_or(io::ErrorKind::InvalidData)?;
    let to = destination(&header).ok_or(io::ErrorKind::InvalidData)?;
    Ok(Received { length, from, to })
}

/// Sends one datagram from the address `from`, which the socket must be allowed to use.
pub fn send(socket: impl AsFd, bytes: &[u8], from: IpAddr, to: SocketAddr) -> io::Result<()> {
    let mut control = Control([0; 128]);
    let mut slice =
        libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let (mut name, name_length) = raw_address(to);
    // SAFETY: all zeroes are a valid msghdr (null pointers and zero lengths).
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_name = (&raw mut name).cast();
    header.msg_namelen = name_length;
    header.msg_iov = &raw mut slice;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    match from {
        IpAddr::V4(from) => {
            // SAFETY: all zeroes are a valid in_pktinfo.
            let mut info: libc::in_pktinfo = unsafe { std::mem::zeroed() };
            info.ipi_spec_dst.s_addr = u32::from_ne_bytes(from.octets());
            attach(&mut header, libc::IPPROTO_IP, libc::IP_PKTINFO, info);
        }
        IpAddr::V6(from) => {
            // SAFETY: all zeroes are a valid in6_pktinfo.
            let mut info: libc::in6_pktinfo = unsafe { std::mem::zeroed() };
            info.ipi6_addr.s6_addr = from.octets();
            attach(&mut header, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info);
        }
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: every pointer in the header leads to a live buffer of the length beside it; the kernel only reads them.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Puts one control message into the header's (zeroed, aligned, large enough) control buffer.
fn attach<T: Copy>(header: &mut libc::msghdr, level: i32, kind: i32, content: T) {
    let size = size_of::<T>() as u32;
    // SAFETY: CMSG_SPACE and CMSG_LEN only compute. The buffer has 128 aligned bytes, more than CMSG_SPACE of either
    // packet information (16 + 12 or 16 + 20), so CMSG_FIRSTHDR is not null and CMSG_DATA has room for a `T`.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size) as _;
        let first = libc::CMSG_FIRSTHDR(header);
        (*first).cmsg_level = level;
        (*first).cmsg_type = kind;
        (*first).cmsg_len = libc::CMSG_LEN(size) as _;
        libc::CMSG_DATA(first).cast::<T>().write_unaligned(content);
    }
}

fn destination(header: &libc::msghdr) -> Option<IpAddr> {
    // SAFETY: the header was filled by the kernel, its control buffer is live; the macros walk within its length.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: not null, so a whole cmsghdr is there; the type says what follows, and the kernel wrote all of it.
        unsafe {
            match ((*message).cmsg_level, (*message).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info = libc::CMSG_DATA(message).cast::<libc::in_pktinfo>().read_unaligned();
                    return Some(Ipv4Addr::from(info.ipi_addr.s_addr.to_ne_bytes()).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info =
                        libc::CMSG_DATA(message).cast::<libc::in6_pktinfo>().read_unaligned();
                    return Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                _ => message = libc::CMSG_NXTHDR(header, message),
            }
        }
    }
    None
}

fn socket_address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match i32::from(name.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one, and the storage is larger and suitably aligned.
            let name = unsafe { &*std::ptr::from_ref(name).cast::<libc::sockaddr_in>() };
            let address = Ipv4Addr::from(name.sin_addr.s_addr.to_ne_bytes());
            Some(SocketAddrV4::new(address, u16::from_be(name.sin_port)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is one, and the storage is larger and suitably aligned.
            let name = unsafe { &*std::ptr::from_ref(name).cast::<libc::sockaddr_in6>() };
            let address = Ipv6Addr::from(name.sin6_addr.s6_addr);
            let port = u16::from_be(name.sin6_port);
            Some(SocketAddrV6::new(address, port, name.sin6_flowinfo, name.sin6_scope_id).into())
        }
        _ => None,
    }
}

fn raw_address(address: SocketAddr) -> (libc::sockaddr_storage, libc::socklen_t) {
    // SAFETY: all zeroes are a valid sockaddr_storage.
    let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    let length = match address {
        SocketAddr::V4(address) => {
            let name = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: address.port().to_be(),
                sin_addr: libc::in_addr { s_addr: u32::from_ne_bytes(address.ip().octets()) },
                sin_zero: [0; 8],
            };
            // SAFETY: the storage is larger than any address and suitably aligned for all.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in>().write(name) };
            size_of::<libc::sockaddr_in>()
        }
        SocketAddr::V6(address) => {
            let name = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: address.port().to_be(),
                sin6_flowinfo: address.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: address.ip().octets() },
                sin6_scope_id: address.scope_id(),
            };
            // SAFETY: the storage is larger than any address and suitably aligned for all.
            unsafe { (&raw mut storage).cast::<libc::sockaddr_in6>().write(name) };
            size_of::<libc::sockaddr_in6>()
        }
    };
    (storage, length as libc::socklen_t)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::socket::{Version, set_packet_information};
    use std::net::UdpSocket;

    fn check(bind: &str, asked: &str, version: Version) {
        let Ok(server) = UdpSocket::bind(bind) else { return };
        set_packet_information(&server, version).unwrap();
        let port = server.local_addr().unwrap().port();
        let asked: IpAddr = asked.parse().unwrap();
        let client = UdpSocket::bind((asked, 0)).unwrap();
        client.set_read_timeout(Some(std::time::Duration::from_secs(5))).unwrap();
        let mut buffer = [0; 64];
        assert_eq!(receive(&server, &mut buffer).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        client.send_to(b"question", (asked, port)).unwrap();
        server.peek(&mut [0; 64]).unwrap();
        let received = receive(&server, &mut buffer).unwrap();
        assert_eq!((&buffer[..received.length], received.to), (&b"question"[..], asked));
        assert_eq!(received.from, client.local_addr().unwrap());
        send(&server, b"reply", received.to, received.from).unwrap();
        let (length, from) = client.recv_from(&mut buffer).unwrap();
        assert_eq!((&buffer[..length], from), (&b"reply"[..], SocketAddr::new(asked, port)));
    }

    #[test]
    fn a_datagram_says_where_it_was_sent_and_is_answered_from_there() {
        check("0.0.0.0:0", "127.0.0.3", Version::V4);
        check("[::]:0", "::1", Version::V6);
    }

    #[test]
    fn what_does_not_fit_is_an_error() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_packet_information(&server, Version::V4).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.send_to(&[1; 100], server.local_addr().unwrap()).unwrap();
        server.peek(&mut [0; 200]).unwrap();
        let error = receive(&server, &mut [0; 10]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }
}
