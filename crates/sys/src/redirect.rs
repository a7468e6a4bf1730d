//! Connections that a packet filter redirected.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, getsockname, sockopt};

/// Where a redirected TCP connection was meant to go, as connection tracking remembers it.
///
/// # Errors
/// `NotFound` where the connection was not redirected.
pub fn original_destination(socket: impl AsFd) -> io::Result<SocketAddr> {
    let socket = socket.as_fd();
    match getsockname(socket)?.address_family() {
        AddressFamily::INET => Ok(sockopt::ip_original_dst(socket)?.into()),
        // A socket of both families reports an IPv4 destination under the IPv4 option only.
        AddressFamily::INET6 => match sockopt::ipv6_original_dst(socket) {
            Ok(address) => Ok(address.into()),
            Err(_) => Ok(sockopt::ip_original_dst(socket)?.into()),
        },
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn a_plain_connection_has_no_other_destination() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let local = listener.local_addr().unwrap();
            let _client = TcpStream::connect(local).unwrap();
            let (accepted, _) = listener.accept().unwrap();
            // Where connection tracking is loaded it answers with the address itself, else with an error.
            assert!(
                original_destination(&accepted).is_ok_and(|found| found == local)
                    || original_destination(&accepted).is_err()
            );
        }
    }
}
