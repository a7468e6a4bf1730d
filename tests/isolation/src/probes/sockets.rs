//! Socket families: ordinary ones work, the rest is a way to the kernel's rarer code.

use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;

use crate::raw::call;
use crate::report::Report;

/// The kernel looks at the low 32 bits of a family only.
const HIGH_BIT: usize = 1 << 32;

/// Opens sockets of every family that a sandbox has no use for, then uses the ordinary ones on loopback.
pub(super) fn sockets(_: &[OsString]) -> Result<Report, String> {
    use libc::{
        SOCK_DGRAM as DATAGRAM, SOCK_RAW as RAW, SOCK_SEQPACKET as PACKETS, SOCK_STREAM as STREAM,
    };
    let every_protocol = i32::from(3_u16.swap_bytes());
    let mut report = Report::new("sockets");
    let families = [
        ("AF_PACKET, raw", libc::AF_PACKET, RAW, every_protocol),
        ("AF_PACKET, datagram", libc::AF_PACKET, DATAGRAM, every_protocol),
        ("AF_VSOCK", libc::AF_VSOCK, STREAM, 0),
        ("AF_ALG", libc::AF_ALG, PACKETS, 0),
        ("AF_KEY", libc::AF_KEY, RAW, 2),
        ("AF_XDP", libc::AF_XDP, RAW, 0),
        ("AF_BLUETOOTH", libc::AF_BLUETOOTH, RAW, 1),
        ("AF_CAN", libc::AF_CAN, RAW, 1),
        ("AF_TIPC", libc::AF_TIPC, PACKETS, 0),
        ("AF_RDS", libc::AF_RDS, PACKETS, 0),
        ("AF_NFC", libc::AF_NFC, PACKETS, 0),
        ("AF_AX25", libc::AF_AX25, DATAGRAM, 0),
        ("AF_X25", libc::AF_X25, PACKETS, 0),
        ("AF_APPLETALK", libc::AF_APPLETALK, DATAGRAM, 0),
        ("AF_LLC", libc::AF_LLC, STREAM, 0),
        ("AF_PPPOX", libc::AF_PPPOX, DATAGRAM, 0),
        ("AF_SMC", 43, STREAM, 0),
        ("AF_QIPCRTR", 42, DATAGRAM, 0),
        ("AF_INET, raw ICMP", libc::AF_INET, RAW, libc::IPPROTO_ICMP),
        ("AF_INET, raw", libc::AF_INET, RAW, libc::IPPROTO_RAW),
        ("AF_INET6, raw ICMP", libc::AF_INET6, RAW, libc::IPPROTO_ICMPV6),
        ("netlink audit", libc::AF_NETLINK, RAW, libc::NETLINK_AUDIT),
        ("netlink events", libc::AF_NETLINK, RAW, libc::NETLINK_KOBJECT_UEVENT),
        ("netlink netfilter", libc::AF_NETLINK, RAW, libc::NETLINK_NETFILTER),
        ("netlink generic", libc::AF_NETLINK, RAW, libc::NETLINK_GENERIC),
        ("netlink crypto", libc::AF_NETLINK, RAW, libc::NETLINK_CRYPTO),
        ("netlink xfrm", libc::AF_NETLINK, RAW, libc::NETLINK_XFRM),
        ("netlink connector", libc::AF_NETLINK, RAW, libc::NETLINK_CONNECTOR),
        ("netlink selinux", libc::AF_NETLINK, RAW, libc::NETLINK_SELINUX),
        ("netlink iscsi", libc::AF_NETLINK, RAW, libc::NETLINK_ISCSI),
        // The agent reads the table of sockets with one of its own; nobody else gets one.
        ("netlink sock_diag", libc::AF_NETLINK, RAW, libc::NETLINK_SOCK_DIAG),
    ];
    for (name, family, kind, protocol) in families {
        let plain = socket(family as usize, kind, protocol);
        report.attempt(format!("socket({name})"), plain);
        let high = socket(family as usize | HIGH_BIT, kind, protocol);
        report.attempt(format!("socket({name}, high bit)"), high);
    }

    report.twin("socketpair(AF_UNIX)", converse_locally());
    report.twin("tcp on 127.0.0.1", converse_tcp("127.0.0.1:0"));
    report.twin(
        "udp on 127.0.0.1",
        UdpSocket::bind("127.0.0.1:0").and_then(|s| s.send_to(b"x", s.local_addr()?)),
    );
    report.twin("socket(AF_INET6)", socket(libc::AF_INET6 as usize, STREAM, 0));
    report
        .twin("socket(netlink route)", socket(libc::AF_NETLINK as usize, RAW, libc::NETLINK_ROUTE));
    Ok(report)
}

fn socket(family: usize, kind: i32, protocol: i32) -> crate::raw::Ended {
    call(libc::SYS_socket, [family, kind as usize, protocol as usize, 0, 0, 0])
}

fn converse_locally() -> io::Result<()> {
    let (mut one, mut other) = UnixStream::pair()?;
    one.write_all(b"x")?;
    other.read_exact(&mut [0])
}

fn converse_tcp(address: &str) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    let mut client = TcpStream::connect(listener.local_addr()?)?;
    let (mut server, _) = listener.accept()?;
    client.write_all(b"x")?;
    server.read_exact(&mut [0])
}
