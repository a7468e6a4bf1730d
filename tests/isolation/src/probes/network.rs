//! A sandbox without network: only its own loopback, and nobody of the host on it.

use std::ffi::OsString;
use std::fs;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as LocalAddress, UnixDatagram, UnixListener, UnixStream};
use std::time::Duration;

use super::argument;
use crate::report::Report;

/// Long enough for loopback, short enough for an address that swallows packets.
const CONNECT: Duration = Duration::from_secs(2);

/// Connects to a port of the host's loopback and to a name in its abstract socket space.
pub(super) fn network(arguments: &[OsString]) -> Result<Report, String> {
    let port: u16 = argument(arguments, 0, "a port")?;
    let name: String = argument(arguments, 1, "an abstract socket name")?;
    let mut report = Report::new("network");

    for host in
        [Ipv4Addr::LOCALHOST.into(), Ipv4Addr::new(127, 0, 0, 2).into(), Ipv6Addr::LOCALHOST.into()]
    {
        let address = SocketAddr::new(host, port);
        report
            .attempt(format!("connect({address})"), TcpStream::connect_timeout(&address, CONNECT));
    }
    report.attempt(
        format!("connect(@{name})"),
        abstract_address(&name).and_then(|a| UnixStream::connect_addr(&a)),
    );
    let datagram =
        abstract_address(&name).and_then(|address| UnixDatagram::unbound()?.connect_addr(&address));
    report.attempt(format!("connect(@{name}, datagram)"), datagram);

    report.fact("interfaces", interfaces());
    report.fact("routes", routes());
    report.fact("abstract_sockets", abstract_sockets());

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let own = listener.and_then(|listener| TcpStream::connect(listener.local_addr()?));
    report.twin("connect(own listener)", own);
    // The same port is free here: a sandbox's ports are its own.
    report.twin(format!("bind(127.0.0.1:{port})"), TcpListener::bind((Ipv4Addr::LOCALHOST, port)));
    let own = abstract_address("belljar-probe").and_then(|address| {
        let _listener = UnixListener::bind_addr(&address)?;
        UnixStream::connect_addr(&address)
    });
    report.twin("connect(own abstract socket)", own);
    report.twin("udp socket", UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
    Ok(report)
}

fn abstract_address(name: &str) -> io::Result<LocalAddress> {
    LocalAddress::from_abstract_name(name)
}

fn interfaces() -> Vec<String> {
    let text = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let lines = text.lines().skip(2);
    lines.filter_map(|line| Some(line.split_once(':')?.0.trim().to_owned())).collect()
}

/// Lines of the routing table below its heading.
fn routes() -> Vec<String> {
    let text = fs::read_to_string("/proc/net/route").unwrap_or_default();
    text.lines().skip(1).map(str::to_owned).collect()
}

fn abstract_sockets() -> Vec<String> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split_whitespace().nth(7));
    names.filter(|name| name.starts_with('@')).map(str::to_owned).collect()
}
