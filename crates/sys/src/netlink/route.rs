//! Links, addresses, routes and neighbours.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::message::Nested;
use super::{Message, Socket};

const RTM_NEWLINK: u16 = 16;
const RTM_DELLINK: u16 = 17;
const RTM_GETLINK: u16 = 18;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const RTM_NEWNEIGH: u16 = 28;

const CREATE_NEW: u16 = 0x200 | 0x400; // NLM_F_EXCL | NLM_F_CREATE
const CREATE: u16 = 0x400;
const REPLACE: u16 = 0x100;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_LINKINFO: u16 = 18;
const IFLA_NET_NS_FD: u16 = 28;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const VETH_INFO_PEER: u16 = 1;

const IFF_UP: u32 = 1;

/// The loopback interface is the first in every namespace.
pub const LOOPBACK: u32 = 1;

/// One end of a pair of links.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    pub name: &'a str,
    /// The number it is to have in its namespace.
    pub index: u32,
    pub hardware_address: [u8; 6],
}

/// Makes a pair of links, both down as long as nobody else says: `here` in the socket's namespace, `there` in the other.
pub fn add_pair(
    socket: &mut Socket,
    here: End<'_>,
    there: End<'_>,
    namespace: BorrowedFd<'_>,
) -> io::Result<()> {
    let peer = Nested::behind(&link(there.index, 0))
        .text(IFLA_IFNAME, there.name)
        .attribute(IFLA_ADDRESS, &there.hardware_address)
        .attribute(IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
    let information = Nested::default()
        .text(IFLA_INFO_KIND, "veth")
        .nested(IFLA_INFO_DATA, Nested::default().nested(VETH_INFO_PEER, peer));
    let message = Message::new(RTM_NEWLINK, CREATE_NEW, &link(here.index, 0))
        .text(IFLA_IFNAME, here.name)
        .attribute(IFLA_ADDRESS, &here.hardware_address)
        .nested(IFLA_LINKINFO, information);
    socket.ask(&[message])
}

/// Removes a link, and with it the other end of the pair. One that is not there is fine.
pub fn remove(socket: &mut Socket, name: &str) -> io::Result<()> {
    match socket.ask(&[Message::new(RTM_DELLINK, 0, &link(0, 0)).text(IFLA_IFNAME, name)]) {
        Err(error) if error.raw_os_error() == Some(libc::ENODEV) => Ok(()),
        result => result,
    }
}

/// Waits until a link that is up at both ends carries packets: the kernel gets there by itself, a moment later.
///
/// # Errors
/// `TimedOut` where that does not happen within a second.
pub fn wait_until_carrying(socket: &mut Socket, index: u32) -> io::Result<()> {
    const PAUSE: std::time::Duration = std::time::Duration::from_micros(200);
    const ATTEMPTS: usize = 5000;
    for _ in 0..ATTEMPTS {
        let mut carries = false;
        let question = Message::new(RTM_GETLINK, 0, &link(index, 0));
        socket.ask_for(&[question], |body| carries |= is_operating(body))?;
        if carries {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Whether a description of a link says that it is in operation.
fn is_operating(body: &[u8]) -> bool {
    const FIXED: usize = 16;
    const IFLA_OPERSTATE: u16 = 16;
    const UP: u8 = 6;
    let mut attributes = body.get(FIXED..).unwrap_or_default();
    while let [low, high, kind_low, kind_high, ..] = *attributes {
        let length = usize::from(u16::from_ne_bytes([low, high])).max(4);
        if u16::from_ne_bytes([kind_low, kind_high]) == IFLA_OPERSTATE {
            return attributes.get(4) == Some(&UP);
        }
        attributes = attributes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

/// Something that an interface is given.
#[derive(Clone, Copy, Debug)]
pub enum Setting {
    Up {
        link: u32,
    },
    Address {
        link: u32,
        address: IpAddr,
        prefix: u8,
    },
    /// A neighbour that is never asked for and never forgotten.
    Neighbour {
        link: u32,
        address: IpAddr,
        hardware_address: [u8; 6],
    },
    /// The way to everywhere else.
    Default {
        link: u32,
        via: IpAddr,
    },
    /// What goes to this address stays here. An address of version 6 brings that by itself, but a moment later.
    Own {
        link: u32,
        address: IpAddr,
    },
    /// Everything of the family of `like` that no other route knows is this host itself.
    Everything {
        like: IpAddr,
    },
}

/// Applies settings, all in one go.
pub fn apply(socket: &mut Socket, settings: &[Setting]) -> io::Result<()> {
    let messages: Vec<_> = settings.iter().map(message).collect();
    socket.ask(&messages)
}

fn message(setting: &Setting) -> Message {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const IFA_F_NODAD: u8 = 2;
    const NDA_DST: u16 = 1;
    const NDA_LLADDR: u16 = 2;
    const NUD_PERMANENT: u16 = 0x80;
    match *setting {
        Setting::Up { link: index } => Message::new(RTM_NEWLINK, 0, &link(index, IFF_UP)),
        Setting::Address { link, address, prefix } => {
            // Nobody else is on the link, so nobody is asked whether the address is free.
            let flags = if address.is_ipv6() { IFA_F_NODAD } else { 0 };
            let mut fixed = vec![family(address), prefix, flags, 0];
            fixed.extend(link.to_ne_bytes());
            Message::new(RTM_NEWADDR, CREATE_NEW, &fixed)
                .attribute(IFA_LOCAL, &octets(address))
                .attribute(IFA_ADDRESS, &octets(address))
        }
        Setting::Neighbour { link, address, hardware_address } => {
            let mut fixed = vec![family(address), 0, 0, 0];
            fixed.extend(link.to_ne_bytes());
            fixed.extend(NUD_PERMANENT.to_ne_bytes());
            fixed.extend([0, 0]);
            Message::new(RTM_NEWNEIGH, CREATE, &fixed)
                .attribute(NDA_DST, &octets(address))
                .attribute(NDA_LLADDR, &hardware_address)
        }
        Setting::Default { link, via } => {
            route(via, 0, ROUTE_UNICAST, link).attribute(RTA_GATEWAY, &octets(via))
        }
        Setting::Own { link, address } => {
            let prefix = if address.is_ipv4() { 32 } else { 128 };
            route(address, prefix, ROUTE_LOCAL, link).attribute(RTA_DST, &octets(address))
        }
        Setting::Everything { like } => route(like, 0, ROUTE_LOCAL, LOOPBACK),
    }
}

const ROUTE_UNICAST: u8 = 1;
const ROUTE_LOCAL: u8 = 2;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;

/// A route, in the table for own addresses if it has a destination and in the main one otherwise.
fn route(like: IpAddr, prefix: u8, kind: u8, link: u32) -> Message {
    const TABLE_MAIN: u8 = 254;
    const TABLE_LOCAL: u8 = 255;
    const PROTOCOL_STATIC: u8 = 4;
    const SCOPE_UNIVERSE: u8 = 0;
    const SCOPE_HOST: u8 = 254;
    let scope = if kind == ROUTE_LOCAL && like.is_ipv4() { SCOPE_HOST } else { SCOPE_UNIVERSE };
    let table = if prefix == 0 { TABLE_MAIN } else { TABLE_LOCAL };
    let mut fixed = vec![family(like), prefix, 0, 0, table, PROTOCOL_STATIC, scope, kind];
    fixed.extend([0; 4]);
    Message::new(RTM_NEWROUTE, CREATE | REPLACE, &fixed).attribute(RTA_OIF, &link.to_ne_bytes())
}

/// `struct ifinfomsg`.
fn link(index: u32, flags: u32) -> Vec<u8> {
    let mut fixed = vec![0; 4];
    fixed.extend(index.to_ne_bytes());
    fixed.extend(flags.to_ne_bytes());
    fixed.extend(flags.to_ne_bytes()); // which of them are meant
    fixed
}

fn family(address: IpAddr) -> u8 {
    (if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 }) as u8
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}
