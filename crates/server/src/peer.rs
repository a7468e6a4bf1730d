//! Where a connection comes from, as the kernel tells it.

use std::net::{IpAddr, SocketAddr};

/// The other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Peer {
    /// A Unix socket, with the user that connected.
    Socket { uid: u32 },
    Tcp {
        address: SocketAddr,
        /// The user that owns the other end, where it is on this machine.
        uid: Option<u32>,
    },
    /// The same process.
    Embedded,
}

impl Peer {
    /// The peer of an accepted TCP connection.
    pub(crate) fn tcp(address: SocketAddr, local: SocketAddr) -> Self {
        let loopback = is_loopback(address.ip()) && is_loopback(local.ip());
        let uid = if loopback { owner(address, local) } else { None };
        Self::Tcp { address, uid }
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// The user that owns the socket at `address` which is connected to `local`, from the kernel's own table.
fn owner(address: SocketAddr, local: SocketAddr) -> Option<u32> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    tables.iter().find_map(|table| {
        let text = std::fs::read_to_string(table).ok()?;
        text.lines().skip(1).find_map(|line| owner_in(line, address, local))
    })
}

/// A line is `slot local remote state queues timer retransmits uid …`.
fn owner_in(line: &str, address: SocketAddr, local: SocketAddr) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (from, to) = (parse(fields.next()?)?, parse(fields.next()?)?);
    let same = |a: SocketAddr, b: SocketAddr| {
        a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical()
    };
    if !same(from, address) || !same(to, local) {
        return None;
    }
    fields.nth(4)?.parse().ok()
}

/// `0100007F:1F90`: each 32-bit word in the machine's byte order.
fn parse(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let mut bytes = Vec::new();
    for start in (0..ip.len()).step_by(8) {
        let word = u32::from_str_radix(ip.get(start..start + 8)?, 16).ok()?;
        bytes.extend(word.to_ne_bytes());
    }
    let ip: IpAddr = match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok()?.into(),
        16 => <[u8; 16]>::try_from(bytes).ok()?.into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_a_loopback_connection_is_found() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, address) = listener.accept().unwrap();
        let peer = Peer::tcp(address, server.local_addr().unwrap());
        let uid = Some(rustix::process::getuid().as_raw());
        assert_eq!(peer, Peer::Tcp { address: client.local_addr().unwrap(), uid });
    }

    #[test]
    fn others_are_nobody() {
        let line = "  0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 1";
        let (a, b) = ("127.0.0.1:8080".parse().unwrap(), "127.0.0.1:50000".parse().unwrap());
        assert_eq!(owner_in(line, a, b), Some(1000));
        assert_eq!(owner_in(line, b, a), None);
        assert_eq!(owner_in("garbage", a, b), None);
    }
}
