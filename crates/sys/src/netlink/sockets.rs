//! Whose a socket is, as far as the kernel tells: the number under which `/proc/PID/fd` shows it.

use std::io;
use std::net::{IpAddr, SocketAddr};

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::{Answers, HEADER, Message, Socket};

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ANY_STATE: u32 = u32::MAX;
/// `INET_DIAG_NOCOOKIE`: any socket with these ends is meant.
const ANY_COOKIE: [u8; 8] = [0xFF; 8];
/// Where the far port and the inode are in `struct inet_diag_msg`.
const FAR_PORT: std::ops::Range<usize> = 6..8;
const INODE: std::ops::Range<usize> = 68..72;
/// An answer has some ninety bytes.
const ANSWER: usize = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    Tcp,
    Udp,
}

impl Socket {
    /// For the table of sockets.
    pub fn sockets() -> io::Result<Self> {
        Self::open(Some(rustix::net::netlink::SOCK_DIAG))
    }

    /// The inode of the socket with these two ends; none where nobody holds it. A datagram socket that is not connected
    /// answers for every far end.
    pub fn inode(
        &mut self,
        transport: Transport,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> io::Result<Option<u32>> {
        self.sequence = self.sequence.wrapping_add(1);
        let mut bytes = Vec::with_capacity(HEADER + 56);
        let fixed = question(transport, local, remote);
        Message::unanswered(SOCK_DIAG_BY_FAMILY, &fixed).write(self.sequence, &mut bytes);
        send(&self.descriptor, &bytes, SendFlags::empty())?;
        let mut buffer = [0; ANSWER];
        loop {
            // The kernel answers while the question is sent; what is not there now never comes.
            let received = recv(&self.descriptor, &mut buffer, RecvFlags::DONTWAIT);
            let length = match received {
                Ok((length, _)) => length.min(ANSWER),
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            };
            for answer in Answers(&buffer[..length]) {
                if answer.sequence != self.sequence {
                    continue;
                }
                return match answer.outcome {
                    Ok(errno) if errno == Errno::NOENT.raw_os_error() => Ok(None),
                    Ok(errno) => Err(io::Error::from_raw_os_error(errno)),
                    Err(()) => Ok(held(answer.body, transport, remote.port())),
                };
            }
        }
    }
}

/// `struct inet_diag_req_v2`.
fn question(transport: Transport, local: SocketAddr, remote: SocketAddr) -> Vec<u8> {
    let family = if local.is_ipv4() { AF_INET } else { AF_INET6 };
    // For datagrams the kernel takes the ends the other way round, and has promised to go on so.
    let (protocol, source, destination) = match transport {
        Transport::Tcp => (TCP, local, remote),
        Transport::Udp => (UDP, remote, local),
    };
    let mut bytes = vec![family, protocol, 0, 0];
    bytes.extend(ANY_STATE.to_ne_bytes());
    bytes.extend(source.port().to_be_bytes());
    bytes.extend(destination.port().to_be_bytes());
    for end in [source, destination] {
        let mut address = [0; 16];
        match end.ip() {
            IpAddr::V4(ip) => address[..4].copy_from_slice(&ip.octets()),
            IpAddr::V6(ip) => address.copy_from_slice(&ip.octets()),
        }
        bytes.extend(address);
    }
    bytes.extend([0; 4]); // any interface
    bytes.extend(ANY_COOKIE);
    bytes
}

/// The inode in a `struct inet_diag_msg`; zero stands for a connection that nobody holds any more.
fn held(body: &[u8], transport: Transport, far: u16) -> Option<u32> {
    let port = u16::from_be_bytes(body.get(FAR_PORT)?.try_into().ok()?);
    // Where there is no such connection, the kernel answers with who listens.
    if transport == Transport::Tcp && port != far {
        return None;
    }
    let inode = u32::from_ne_bytes(body.get(INODE)?.try_into().ok()?);
    Some(inode).filter(|inode| *inode != 0)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    fn shown(socket: &impl AsFd) -> Option<u32> {
        let path = format!("/proc/self/fd/{}", socket.as_fd().as_raw_fd());
        let link = std::fs::read_link(path).unwrap();
        let link = link.to_str().unwrap();
        link.strip_prefix("socket:[").unwrap().strip_suffix(']').unwrap().parse().ok()
    }

    #[test]
    fn finds_both_ends_of_a_connection_and_no_other() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let (near, far) = (client.local_addr().unwrap(), client.peer_addr().unwrap());
            let mut table = Socket::sockets().unwrap();
            assert_eq!(table.inode(Transport::Tcp, near, far).unwrap(), shown(&client));
            assert_eq!(table.inode(Transport::Tcp, far, near).unwrap(), shown(&server));
            // A listener is not a connection that nobody made.
            let nobody = SocketAddr::new(near.ip(), 1);
            assert_eq!(table.inode(Transport::Tcp, far, nobody).unwrap(), None);
            drop((client, server));
            assert_eq!(table.inode(Transport::Tcp, near, far).unwrap(), None);
        }
    }

    #[test]
    fn finds_datagram_sockets_connected_or_not() {
        let (one, other) = (UdpSocket::bind("127.0.0.1:0"), UdpSocket::bind("127.0.0.1:0"));
        let (one, other) = (one.unwrap(), other.unwrap());
        let (near, far) = (one.local_addr().unwrap(), other.local_addr().unwrap());
        let mut table = Socket::sockets().unwrap();
        assert_eq!(table.inode(Transport::Udp, near, far).unwrap(), shown(&one));
        one.connect(far).unwrap();
        assert_eq!(table.inode(Transport::Udp, near, far).unwrap(), shown(&one));
        drop(one);
        assert_eq!(table.inode(Transport::Udp, near, far).unwrap(), None);
    }
}
