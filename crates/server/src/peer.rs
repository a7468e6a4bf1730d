//! Where a connection comes from, as the kernel tells it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use tokio::sync::OnceCell;

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A Unix socket, with the user that connected.
    Socket {
        uid: u32,
    },
    Tcp(TcpPeer),
    /// The same process.
    Embedded,
}

impl Peer {
    /// Where it comes from, over TCP.
    pub(crate) fn address(&self) -> Option<IpAddr> {
        match self {
            Self::Tcp(peer) => Some(peer.address.ip()),
            Self::Socket { .. } | Self::Embedded => None,
        }
    }
}

/// The other end of a TCP connection.
#[derive(Clone, Debug)]
pub(crate) struct TcpPeer {
    pub(crate) address: SocketAddr,
    local: SocketAddr,
    owner: Arc<OnceCell<Option<u32>>>,
}

impl TcpPeer {
    pub(crate) fn new(address: SocketAddr, local: SocketAddr) -> Self {
        Self { address, local, owner: Arc::default() }
    }

    /// The user that holds the other end, where it is on this machine and still held. Looked up once, and only for who
    /// asks without a key: it reads the kernel's whole table.
    pub(crate) async fn owner(&self) -> Option<u32> {
        let (address, local) = (self.address, self.local);
        if !is_loopback(address.ip()) || !is_loopback(local.ip()) {
            return None;
        }
        let look = || async move {
            let looked = tokio::task::spawn_blocking(move || owner(address, local));
            looked.await.unwrap_or_default()
        };
        *self.owner.get_or_init(look).await
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

/// A line is `slot local remote state queues timer retransmits uid timeout inode …`.
///
/// A socket that its process has closed already belongs to nobody: it has no inode any more, and the kernel shows zero
/// for its user. To take that for root would let in whoever hangs up at once.
fn owner_in(line: &str, address: SocketAddr, local: SocketAddr) -> Option<u32> {
    let mut fields = line.split_ascii_whitespace().skip(1);
    let (from, to) = (parse(fields.next()?)?, parse(fields.next()?)?);
    let same = |a: SocketAddr, b: SocketAddr| {
        a.port() == b.port() && a.ip().to_canonical() == b.ip().to_canonical()
    };
    if !same(from, address) || !same(to, local) {
        return None;
    }
    let uid = fields.nth(4)?.parse().ok()?;
    let inode: u64 = fields.nth(1)?.parse().ok()?;
    (inode != 0).then_some(uid)
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

    fn connected() -> (std::net::TcpStream, std::net::TcpStream, TcpPeer) {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (server, address) = listener.accept().unwrap();
        let peer = TcpPeer::new(address, server.local_addr().unwrap());
        (client, server, peer)
    }

    #[tokio::test]
    async fn the_owner_of_a_loopback_connection_is_found() {
        let (_client, _server, peer) = connected();
        assert_eq!(peer.owner().await, Some(rustix::process::getuid().as_raw()));
    }

    #[tokio::test]
    async fn who_has_hung_up_is_nobody() {
        let (client, _server, peer) = connected();
        drop(client);
        assert_eq!(peer.owner().await, None);
    }

    #[test]
    fn others_are_nobody() {
        let line = "  0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000  1000        0 77";
        let closed = line.replace(" 77", " 0");
        let (a, b) = ("127.0.0.1:8080".parse().unwrap(), "127.0.0.1:50000".parse().unwrap());
        assert_eq!(owner_in(line, a, b), Some(1000));
        assert_eq!(owner_in(line, b, a), None);
        assert_eq!(owner_in(&closed, a, b), None);
        assert_eq!(owner_in("garbage", a, b), None);
    }
}
