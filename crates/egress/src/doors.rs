//! What a sandbox's network ends in, and who is behind it.

mod asked;
mod candidates;
mod draft;
mod farewell;
mod head;
mod pass;
pub(crate) mod proxy;
mod pump;
pub(crate) mod tcp;
pub(crate) mod token;
mod tunnel;
pub(crate) mod udp;

pub(crate) use draft::Draft;
pub use token::ProxyKey;

use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use belljar_policy::{SandboxId, TenantId};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use crate::flow::Judge;

/// How long a door waits after the kernel refused it a connection (out of descriptors, as a rule).
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Who is behind a set of doors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Identity {
    pub sandbox: SandboxId,
    pub tenant: TenantId,
}

/// The sockets of one sandbox, bound and listening in its gateway's network namespace.
///
/// Several per kind: one for IPv4, one for IPv6.
#[derive(Debug, Default)]
pub struct Doors {
    /// Where every TCP connection is redirected to.
    pub tcp: Vec<TcpListener>,
    pub dns_udp: Vec<UdpSocket>,
    pub dns_tcp: Vec<TcpListener>,
    /// The ports that UDP rules name, with the port. The sockets report the original destination (packet info).
    pub udp: Vec<(u16, UdpSocket)>,
    /// For programs that insist on a proxy: HTTP and SOCKS5.
    pub proxy: Vec<TcpListener>,
}

/// Tells where a redirected connection was meant to go.
pub trait Destinations: Send + Sync {
    /// # Errors
    /// Where the connection was not redirected, or the kernel does not tell.
    fn original(&self, connection: &TcpStream) -> io::Result<SocketAddr>;
}

/// The kernel's own word: `SO_ORIGINAL_DST`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Redirected;

impl Destinations for Redirected {
    fn original(&self, connection: &TcpStream) -> io::Result<SocketAddr> {
        let original = belljar_sys::redirect::original_destination(connection)?;
        // A connection straight to the door was meant for us, not for somebody outside.
        if original == connection.local_addr()? {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        Ok(original)
    }
}

/// Accepts while there is room, and serves each connection in a task of its own.
///
/// Beyond `flows` connections wait in the kernel's queue; where the process has no room for a socket, it is reset.
async fn accept<F: Future<Output = ()> + Send + 'static>(
    judge: &Judge,
    listener: tokio::net::TcpListener,
    flows: Arc<Semaphore>,
    serve: impl Fn(TcpStream) -> F,
) {
    while let Ok(flow) = Arc::clone(&flows).acquire_owned().await {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Some(place) = judge.enter() else {
                    pump::reset(&stream);
                    continue;
                };
                let served = serve(stream);
                tokio::spawn(async move {
                    served.await;
                    drop((flow, place));
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a door could not take a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

pub(crate) fn fuzz_opening(bytes: &[u8]) {
    let claimed = head::claimed_host(bytes);
    let normal = |name: &str| crate::names::normalise(name).as_deref() == Some(name);
    assert!(claimed.as_deref().is_none_or(normal), "{claimed:?}");
    let _ = head::is_http(bytes);
}

pub(crate) fn fuzz_connect(bytes: &[u8]) {
    if let Some(target) = tunnel::connect_target(bytes) {
        assert_ne!(target.port, 0);
        let refused = tunnel::refused(&target, crate::Reason::NotListed);
        assert_eq!(refused.windows(4).filter(|four| four == b"\r\n\r\n").count(), 1);
    }
}
