//! The gateway of a sandbox: a network namespace with no way out, and the doors in it.
//!
//! A pair of links joins it to the sandbox's network. Whatever arrives over TCP is turned to the TCP door, questions to
//! any name server to the DNS doors; all else is dropped, and so is whatever does not come from the sandbox's own address.
//! Nothing passes through and nothing is sent from here but answers. The doors are sockets that are handed out, and
//! nothing else keeps the gateway: when the last of them is closed, it and the links are gone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_sys::namespace;
use belljar_sys::netlink::Socket;
use belljar_sys::netlink::nftables::{
    Chain, Condition, Hook, Policy, Protocol, Rule, Then, add_table,
};
use belljar_sys::netlink::route::{self, End, Setting};
use belljar_sys::socket::{Version, set_packet_information, set_transparent};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, listen, socket_with, sockopt};

use crate::failure::{Result, Stage};
use crate::wire::{Door, DoorKind, Failure, GATEWAY_V4, GATEWAY_V6, PROXY_PORT};

const INSIDE_V4: Ipv4Addr = Ipv4Addr::new(192, 0, 0, 2);
const PREFIX_V4: u8 = 29;
const INSIDE_V6: Ipv6Addr = Ipv6Addr::new(0xfd62, 0x6c6a, 0x7200, 0, 0, 0, 0, 2);
const PREFIX_V6: u8 = 64;

/// High enough to be free also where tunnels come with every namespace.
const LINK: u32 = 1000;
const OUTSIDE: End<'_> = End { name: "gateway", index: LINK, hardware_address: [2, 0, 0, 0, 0, 1] };
const INSIDE: End<'_> = End { name: "eth0", index: LINK, hardware_address: [2, 0, 0, 0, 0, 2] };

const DNS: u16 = 53;
/// Where the door for all connections is; no program ever sees this number.
const TCP_DOOR: u16 = 15001;

/// Connections that may wait to be taken: as many as a sandbox may have open, since who finds no place in the queue is heard
/// only a second later.
const BACKLOG: i32 = 4096;

/// Makes the gateway of the network namespace that the calling process is in, and leaves the process in the gateway's.
///
/// One that was there before is gone afterwards.
pub(crate) fn build(udp_ports: &[u16]) -> Result<(Vec<Door>, Vec<OwnedFd>)> {
    let inside = namespace::network().stage("gateway-namespace")?;
    let mut inside_route = Socket::route().stage("gateway-link")?;
    route::remove(&mut inside_route, INSIDE.name).stage("gateway-link")?;
    namespace::new_network().stage("gateway-namespace")?;
    let families = families();
    filter(&families, udp_ports)?;
    let mut outside_route = Socket::route().stage("gateway-link")?;
    route::add_pair(&mut outside_route, OUTSIDE, INSIDE, inside.as_fd()).stage("gateway-link")?;
    for side in [&mut outside_route, &mut inside_route] {
        route::apply(side, &[Setting::Up { link: LINK }]).stage("gateway-link")?;
    }
    // Only then are addresses usable at once.
    for side in [&mut outside_route, &mut inside_route] {
        route::wait_until_carrying(side, LINK).stage("gateway-link")?;
    }
    let mut outside = Vec::new();
    let mut within = Vec::new();
    for family in &families {
        let Family { gateway, inside, prefix, .. } = *family;
        outside.push(Setting::Address { link: LINK, address: gateway, prefix });
        outside.push(Setting::Own { link: LINK, address: gateway });
        outside.push(neighbour(inside, INSIDE));
        if !udp_ports.is_empty() {
            outside.push(Setting::Everything { like: gateway });
        }
        within.push(Setting::Address { link: LINK, address: inside, prefix });
        within.push(Setting::Own { link: LINK, address: inside });
        within.push(neighbour(gateway, OUTSIDE));
        within.push(Setting::Default { link: LINK, via: gateway });
    }
    route::apply(&mut outside_route, &outside).stage("gateway-address")?;
    route::apply(&mut inside_route, &within).stage("gateway-address")?;
    doors(&families, udp_ports)
}

/// Takes the link to a gateway away from the network that the calling process is in.
pub(crate) fn remove_link() -> Result<()> {
    let mut here = Socket::route().stage("gateway-link")?;
    route::remove(&mut here, INSIDE.name).stage("gateway-link")
}

/// Makes the gateway of another process's network namespace, in a process that ends afterwards. `users`: the user
/// namespace in which there is the power to do so.
pub(crate) fn build_for(
    users: Option<BorrowedFd<'_>>,
    network: BorrowedFd<'_>,
    udp_ports: &[u16],
) -> Result<(Vec<Door>, Vec<OwnedFd>)> {
    if let Some(users) = users {
        namespace::join_user(users).stage("join-namespace")?;
    }
    namespace::join_network(network).stage("join-namespace")?;
    build(udp_ports)
}

#[derive(Clone, Copy)]
struct Family {
    version: Version,
    gateway: IpAddr,
    inside: IpAddr,
    prefix: u8,
}

/// The versions of the protocol that this kernel has.
fn families() -> Vec<Family> {
    let mut families = vec![Family {
        version: Version::V4,
        gateway: GATEWAY_V4.into(),
        inside: INSIDE_V4.into(),
        prefix: PREFIX_V4,
    }];
    // Without it there is nothing to close: no packet of that family can be sent either.
    if socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None).is_ok() {
        families.push(Family {
            version: Version::V6,
            gateway: GATEWAY_V6.into(),
            inside: INSIDE_V6.into(),
            prefix: PREFIX_V6,
        });
    }
    families
}

fn neighbour(address: IpAddr, end: End<'_>) -> Setting {
    Setting::Neighbour { link: LINK, address, hardware_address: end.hardware_address }
}

/// Closes everything before there is a link.
fn filter(families: &[Family], udp_ports: &[u16]) -> Result<()> {
    let mut arriving = Vec::new();
    let mut redirecting = Vec::new();
    for family in families {
        let from_inside = [Condition::ArrivedOn(LINK), Condition::Source(family.inside)];
        let accept = |more: &[Condition]| Rule {
            conditions: [&from_inside[..], more].concat(),
            then: Then::Accept,
        };
        arriving.push(accept(&[Condition::Protocol(Protocol::Tcp)]));
        for port in [DNS].iter().chain(udp_ports) {
            arriving.push(accept(&[
                Condition::Protocol(Protocol::Udp),
                Condition::DestinationPort(*port),
            ]));
        }
        let family_of = Condition::FamilyOf(family.gateway);
        let turn = |conditions: &[Condition], port: u16| Rule {
            conditions: [&[family_of], conditions].concat(),
            then: Then::SendTo(family.gateway, port),
        };
        let tcp = Condition::Protocol(Protocol::Tcp);
        let udp = Condition::Protocol(Protocol::Udp);
        redirecting.push(Rule {
            conditions: vec![
                Condition::Destination(family.gateway),
                tcp,
                Condition::DestinationPort(PROXY_PORT),
            ],
            then: Then::Accept,
        });
        redirecting.push(turn(&[tcp, Condition::DestinationPort(DNS)], DNS));
        redirecting.push(turn(&[tcp], TCP_DOOR));
        redirecting.push(turn(&[udp, Condition::DestinationPort(DNS)], DNS));
    }
    let answers = Rule {
        conditions: vec![Condition::LeavesBy(LINK), Condition::Established],
        then: Then::Accept,
    };
    let chain = |name, hook, policy, rules| Chain { name, hook, policy, rules };
    let chains = [
        chain("arriving", Hook::Arriving, Policy::Drop, arriving),
        chain("redirecting", Hook::Redirecting, Policy::Accept, redirecting),
        chain("forwarding", Hook::Forwarding, Policy::Drop, Vec::new()),
        chain("sending", Hook::Sending, Policy::Drop, vec![answers]),
    ];
    let mut netfilter = Socket::netfilter().stage("gateway-filter")?;
    add_table(&mut netfilter, "belljar", &chains).stage("gateway-filter")
}

fn doors(families: &[Family], udp_ports: &[u16]) -> Result<(Vec<Door>, Vec<OwnedFd>)> {
    let mut doors = Vec::new();
    let mut sockets = Vec::new();
    for family in families {
        for (kind, port) in
            [(DoorKind::Tcp, TCP_DOOR), (DoorKind::DnsTcp, DNS), (DoorKind::Proxy, PROXY_PORT)]
        {
            let socket = open(family, SocketType::STREAM)?;
            sockopt::set_socket_reuseaddr(&socket, true).stage("gateway-door")?;
            bind(&socket, &SocketAddr::new(family.gateway, port)).stage("gateway-door")?;
            listen(&socket, BACKLOG).stage("gateway-door")?;
            doors.push(Door { kind, port });
            sockets.push(socket);
        }
        let socket = open(family, SocketType::DGRAM)?;
        bind(&socket, &SocketAddr::new(family.gateway, DNS)).stage("gateway-door")?;
        doors.push(Door { kind: DoorKind::DnsUdp, port: DNS });
        sockets.push(socket);
        for &port in udp_ports {
            let socket = open(family, SocketType::DGRAM)?;
            set_transparent(&socket, family.version).stage("gateway-door")?;
            set_packet_information(&socket, family.version).stage("gateway-door")?;
            bind(&socket, &SocketAddr::new(any(family.version), port)).stage("gateway-door")?;
            doors.push(Door { kind: DoorKind::Udp, port });
            sockets.push(socket);
        }
    }
    Ok((doors, sockets))
}

fn open(family: &Family, kind: SocketType) -> Result<OwnedFd> {
    let address_family = match family.version {
        Version::V4 => AddressFamily::INET,
        Version::V6 => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(address_family, kind, flags, None).stage("gateway-door")?;
    if family.version == Version::V6 {
        sockopt::set_ipv6_v6only(&socket, true).stage("gateway-door")?;
    }
    Ok(socket)
}

fn any(version: Version) -> IpAddr {
    match version {
        Version::V4 => Ipv4Addr::UNSPECIFIED.into(),
        Version::V6 => Ipv6Addr::UNSPECIFIED.into(),
    }
}

/// Refuses ports that mean something else.
pub(crate) fn check_ports(udp_ports: &[u16]) -> Result<()> {
    const MOST: usize = 64;
    if udp_ports.len() > MOST || udp_ports.iter().any(|port| matches!(port, 0 | &DNS)) {
        return Err(Failure::new("gateway-ports", rustix::io::Errno::INVAL.raw_os_error()));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
