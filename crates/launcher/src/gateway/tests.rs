//! Real gateways, each in a thread with namespaces of its own. They need root.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration;

use belljar_sys::namespace;

use super::*;

/// Runs `test` in a thread whose network is a sandbox's with a gateway.
fn within(udp_ports: &'static [u16], test: impl FnOnce(&mut Doors) + Send + 'static) {
    if !rustix::process::geteuid().is_root() {
        println!("SKIPPED: making network namespaces needs root");
        return;
    }
    let run = move || {
        namespace::new_network().unwrap();
        let inside = namespace::network().unwrap();
        let (kinds, sockets) = build(udp_ports).unwrap();
        namespace::join_network(inside.as_fd()).unwrap();
        test(&mut Doors { kinds, sockets });
    };
    std::thread::spawn(run).join().unwrap();
}

struct Doors {
    kinds: Vec<Door>,
    sockets: Vec<OwnedFd>,
}

impl Doors {
    /// A door of the family of `address`.
    fn take(&mut self, kind: DoorKind, address: &str) -> OwnedFd {
        let version6 = address.contains(':');
        let half = self.kinds.len() / 2; // one family behind the other
        let from = if version6 { half } else { 0 };
        let at = from + self.kinds[from..].iter().position(|one| one.kind == kind).unwrap();
        self.sockets[at].try_clone().unwrap()
    }

    fn listener(&mut self, kind: DoorKind, address: &str) -> TcpListener {
        let listener = TcpListener::from(self.take(kind, address));
        listener.set_nonblocking(false).unwrap();
        listener
    }
}

/// What comes comes at once, but for a machine that has other things to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long nothing must come.
const SILENCE: Duration = Duration::from_millis(300);

fn socket(address: &str) -> UdpSocket {
    let any = if address.contains(':') { "[::]:0" } else { "0.0.0.0:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn connect(address: &str, port: u16) -> std::io::Result<TcpStream> {
    TcpStream::connect_timeout(&SocketAddr::new(address.parse().unwrap(), port), PATIENCE)
}

#[test]
fn every_connection_ends_at_the_tcp_door() {
    within(&[], |doors| {
        for address in ["203.0.113.9", "2001:db8::9", "10.1.2.3", "192.0.0.1"] {
            let mut outgoing = connect(address, 443).unwrap();
            let listener = doors.listener(DoorKind::Tcp, address);
            let (mut incoming, peer) = listener.accept().unwrap();
            assert_eq!(
                peer.ip(),
                if address.contains(':') { IpAddr::from(INSIDE_V6) } else { INSIDE_V4.into() }
            );
            outgoing.write_all(b"up").unwrap();
            let mut read = [0; 2];
            incoming.read_exact(&mut read).unwrap();
            assert_eq!(&read, b"up");
            incoming.write_all(b"dn").unwrap();
            outgoing.read_exact(&mut read).unwrap();
            assert_eq!(&read, b"dn");
        }
    });
}

#[test]
fn questions_to_any_name_server_come_to_the_dns_doors() {
    within(&[], |doors| {
        for address in ["203.0.113.9", "2001:db8::9"] {
            let asker = socket(address);
            asker.send_to(b"?", (address, 53)).unwrap();
            let door = UdpSocket::from(doors.take(DoorKind::DnsUdp, address));
            door.set_nonblocking(false).unwrap();
            door.set_read_timeout(Some(PATIENCE)).unwrap();
            let mut read = [0; 8];
            let (_, from) = door.recv_from(&mut read).unwrap();
            door.send_to(b"!", from).unwrap();
            let (_, answered) = asker.recv_from(&mut read).unwrap();
            assert_eq!(answered.ip().to_string(), address, "as if from where it was asked");

            let listener = doors.listener(DoorKind::DnsTcp, address);
            let _asking = connect(address, 53).unwrap();
            listener.accept().unwrap();
        }
    });
}

#[test]
fn all_else_is_dropped_and_the_proxy_is_reached_at_its_own_address_only() {
    within(&[], |doors| {
        let asker = socket("0.0.0.0");
        asker.set_read_timeout(Some(SILENCE)).unwrap();
        asker.send_to(b"?", ("203.0.113.9", 443)).unwrap();
        asker.send_to(b"?", ("192.0.0.1", 15001)).unwrap();
        assert!(asker.recv_from(&mut [0; 8]).is_err());
        let proxy = doors.listener(DoorKind::Proxy, "0.0.0.0");
        let _to_proxy = connect("192.0.0.1", 3128).unwrap();
        proxy.accept().unwrap();
        proxy.set_nonblocking(true).unwrap();
        let _elsewhere = connect("203.0.113.9", 3128).unwrap();
        assert!(proxy.accept().is_err());
    });
}

#[test]
fn another_source_address_gets_nowhere() {
    within(&[], |_doors| {
        let mut netlink = Socket::route().unwrap();
        let address = "192.0.0.3".parse().unwrap();
        let setting = Setting::Address { link: LINK, address, prefix: 32 };
        route::apply(&mut netlink, &[setting]).unwrap();
        let spoofed = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        bind(&spoofed, &SocketAddr::new(address, 0)).unwrap();
        let to = SocketAddr::new("203.0.113.9".parse().unwrap(), 80);
        let _ = rustix::net::connect(&spoofed, &to);
        let mut polled = [rustix::event::PollFd::new(&spoofed, rustix::event::PollFlags::OUT)];
        let silence = SILENCE.try_into().unwrap();
        assert_eq!(rustix::event::poll(&mut polled, Some(&silence)).unwrap(), 0);
        connect("203.0.113.9", 80).unwrap();
    });
}

#[test]
fn a_named_udp_port_is_open_to_every_address_and_no_other_port_is() {
    within(&[4433], |doors| {
        for address in ["203.0.113.9", "2001:db8::9"] {
            let door = UdpSocket::from(doors.take(DoorKind::Udp, address));
            door.set_nonblocking(false).unwrap();
            door.set_read_timeout(Some(PATIENCE)).unwrap();
            let asker = socket(address);
            asker.send_to(b"?", (address, 4434)).unwrap();
            asker.send_to(b"!", (address, 4433)).unwrap();
            let mut read = [0; 8];
            assert_eq!(door.recv_from(&mut read).unwrap().0, 1);
            assert_eq!(read[0], b'!');
        }
    });
}

#[test]
fn without_its_doors_a_gateway_is_gone_and_a_new_one_takes_its_place() {
    within(&[], |doors| {
        connect("203.0.113.9", 80).unwrap();
        doors.sockets.clear();
        let nowhere = SocketAddr::new("203.0.113.9".parse().unwrap(), 80);
        assert!(TcpStream::connect_timeout(&nowhere, SILENCE).is_err());
        let inside = namespace::network().unwrap();
        let (_, sockets) = build(&[]).unwrap();
        namespace::join_network(inside.as_fd()).unwrap();
        connect("203.0.113.9", 80).unwrap();
        drop(sockets);
    });
}
