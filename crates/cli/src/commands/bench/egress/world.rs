//! Two network namespaces joined by a link: in one the origin, in the other everything that is measured.
//!
//! The host's own network has no part in it. A namespace belongs to a thread and to what the thread starts, so each of
//! the two has a thread of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command};
use std::sync::{Arc, mpsc};
use std::thread;

use belljar_sys::namespace;
use belljar_sys::netlink::Socket;
use belljar_sys::netlink::route::{self, End, LOOPBACK, Setting};

use super::origin::Origin;

/// From the range that is set aside for measuring (RFC 2544).
const EDGE: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 1);
pub(super) const ORIGIN: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 10);
pub(super) const NAMES: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 53);
const PREFIX: u8 = 24;
/// What a sandbox must be allowed besides the names, because the range is not public.
pub(super) const RANGE: &str = "198.18.0.0/24";

const LINK: u32 = 700;

type Started = io::Result<Child>;

pub(super) struct World {
    pub(super) origin: Arc<Origin>,
    commands: mpsc::Sender<(Command, mpsc::Sender<Started>)>,
}

impl World {
    pub(super) fn new() -> io::Result<Self> {
        let (made, ready) = mpsc::channel();
        let (commands, wanted) = mpsc::channel::<(Command, mpsc::Sender<Started>)>();
        thread::spawn(move || {
            let origin = edge();
            let failed = origin.is_err();
            if made.send(origin).is_err() || failed {
                return;
            }
            for (mut command, answer) in wanted {
                // Nobody waits any more: neither for this one nor for another.
                let _ = answer.send(command.spawn());
            }
        });
        let origin = ready.recv().map_err(|_| gone())??;
        Ok(Self { origin, commands })
    }

    /// Starts a program on the edge: what a transfer without Belljar is, and where Belljar itself runs.
    pub(super) fn spawn(&self, command: Command) -> Started {
        let (answer, started) = mpsc::channel();
        self.commands.send((command, answer)).map_err(|_| gone())?;
        started.recv().map_err(|_| gone())?
    }
}

fn gone() -> io::Error {
    io::Error::other("the thread of a network namespace ended")
}

/// Makes the edge of the calling thread's namespace, and the origin behind it.
fn edge() -> io::Result<Arc<Origin>> {
    namespace::new_network()?;
    let here = namespace::network()?;
    let origin = thread::spawn(move || behind(&here)).join().map_err(|_| gone())??;
    configure(&[EDGE])?;
    Ok(origin)
}

/// The origin's side: the servers are threads that stay in this namespace.
fn behind(edge: &OwnedFd) -> io::Result<Arc<Origin>> {
    namespace::new_network()?;
    let mut netlink = Socket::route()?;
    let end = |name, last| End { name, index: LINK, hardware_address: [2, 0, 0, 0, 1, last] };
    route::add_pair(&mut netlink, end("origin", 1), end("edge", 2), edge.as_fd())?;
    configure(&[ORIGIN, NAMES])?;
    Origin::serve()
}

fn configure(addresses: &[Ipv4Addr]) -> io::Result<()> {
    let mut settings = vec![Setting::Up { link: LOOPBACK }, Setting::Up { link: LINK }];
    for address in addresses.iter().copied().map(IpAddr::V4) {
        settings.push(Setting::Address { link: LINK, address, prefix: PREFIX });
        settings.push(Setting::Own { link: LINK, address });
    }
    route::apply(&mut Socket::route()?, &settings)
}
