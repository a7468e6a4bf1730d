//! An internet of the test's own: a network namespace with servers in it, joined to the one that Belljar runs in.
//!
//! Nothing in it is real, and nothing leaves it: the calling thread, and every process it starts from then on, is in a
//! namespace whose only link leads there.

use std::collections::HashMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use belljar_sys::namespace;
use belljar_sys::netlink::Socket;
use belljar_sys::netlink::route::{self, End, LOOPBACK, Setting};
use belljar_testkit::Installation;

/// Addresses that are public in form. The host's side of the link has the first.
pub(crate) const HOST: &str = "11.0.0.1";
pub(crate) const ORIGIN: &str = "11.0.0.10";
pub(crate) const OTHER: &str = "11.0.0.11";
pub(crate) const ORIGIN_V6: &str = "2600:1::10";
const HOST_V6: &str = "2600:1::1";
const RESOLVER: &str = "11.0.0.53";
/// One that is not public.
pub(crate) const PRIVATE: &str = "10.9.0.9";

pub(crate) const WEB: u16 = 80;
/// Says `hello` first, then repeats what it is told.
pub(crate) const ECHO: u16 = 7777;
/// Sends datagrams back, at the origin.
#[allow(dead_code, reason = "not every suite does")]
pub(crate) const DATAGRAMS: u16 = 7778;

const LINK: u32 = 700;
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct World {
    /// Names that the resolver was asked for.
    asked: Arc<Mutex<Vec<String>>>,
    /// Connections to servers, by their address.
    reached: Arc<Mutex<Vec<SocketAddr>>>,
    zone: Arc<Mutex<HashMap<String, Vec<IpAddr>>>>,
    /// A server for TLS, where the machine has a program for it.
    tls: Option<Child>,
    programs: (mpsc::Sender<Command>, mpsc::Receiver<Child>),
}

impl World {
    /// Makes the world and moves the calling thread to the edge of it. The installation's names come from there.
    pub(crate) fn new(belljar: &Installation) -> Self {
        namespace::new_network().expect("root may make namespaces");
        let (commands, started) = mpsc::channel::<Command>();
        let (children, child) = mpsc::channel();
        let programs = (commands, child);
        let (asked, reached, zone) = Default::default();
        let mut world = Self { asked, reached, zone, tls: None, programs };
        world.name("origin.test", &[ORIGIN]);
        world.name("other.test", &[OTHER]);
        world.name("private.test", &[PRIVATE]);
        world.name("six.test", &[ORIGIN_V6]);
        let edge = namespace::network().expect("our own namespace");
        let (asked, reached, zone) =
            (world.asked.clone(), world.reached.clone(), world.zone.clone());
        world.name("tls.test", &[ORIGIN]);
        let certificates = belljar.probe_directory();
        let (ready, made) = mpsc::channel();
        thread::spawn(move || {
            namespace::new_network().expect("root may make namespaces");
            join(&edge);
            let resolver = UdpSocket::bind((RESOLVER, 53)).expect("an address of ours");
            thread::spawn(move || resolve(&resolver, &zone, &asked));
            for address in [ORIGIN, OTHER, PRIVATE, ORIGIN_V6] {
                serve(address, WEB, &reached, answer_web);
                serve(address, ECHO, &reached, answer_echo);
            }
            let datagrams = UdpSocket::bind((ORIGIN, DATAGRAMS)).expect("an address of ours");
            thread::spawn(move || send_back(&datagrams));
            ready.send(serve_tls(&certificates)).expect("the test waits");
            for mut command in started {
                children
                    .send(command.spawn().expect("the program exists"))
                    .expect("the test waits");
            }
        });
        world.tls = made.recv().expect("the world can be made");
        let here = [(HOST, 24), (HOST_V6, 64), ("10.9.0.1", 24)];
        configure(&here);
        serve(HOST, WEB, &world.reached, answer_web);
        let directory = belljar.make_directory("home/.config/belljar");
        fs::write(directory.join("config.toml"), format!("dns_upstream = \"{RESOLVER}\"\n"))
            .expect("our own file");
        world
    }

    /// Starts a program in the world.
    #[allow(dead_code, reason = "not every suite does")]
    pub(crate) fn start(&self, command: Command) -> Child {
        let (commands, children) = &self.programs;
        commands.send(command).expect("the world lives as long as the test");
        children.recv().expect("the world lives as long as the test")
    }

    /// Gives a name addresses from now on; several are answered one after the other, each once, the last for ever.
    pub(crate) fn name(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| text.parse().expect("an address")).collect();
        self.zone.lock().expect("no test panics with it").insert(name.to_owned(), addresses);
    }

    pub(crate) fn has_tls(&self) -> bool {
        self.tls.is_some()
    }

    /// Every name that the resolver was asked for.
    #[allow(dead_code, reason = "not every suite does")]
    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().expect("no test panics with it").clone()
    }

    pub(crate) fn was_asked(&self, name: &str) -> bool {
        self.asked.lock().expect("no test panics with it").iter().any(|asked| asked == name)
    }

    /// How many connections a server had.
    pub(crate) fn reached(&self, address: &str) -> usize {
        let address: IpAddr = address.parse().expect("an address");
        let reached = self.reached.lock().expect("no test panics with it");
        reached.iter().filter(|one| one.ip() == address).count()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(server) = &mut self.tls {
            let _ = server.kill();
            let _ = server.wait();
        }
    }
}

/// A server for `tls.test` at the origin's address, whose certificate is `ca.pem` among the probe's files.
fn serve_tls(directory: &Path) -> Option<Child> {
    let (certificate, key) = (directory.join("ca.pem"), directory.join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=tls.test", "-addext", "subjectAltName=DNS:tls.test"])
        .arg("-keyout")
        .arg(&key)
        .arg("-out")
        .arg(&certificate)
        .stderr(Stdio::null())
        .status();
    if !made.is_ok_and(|status| status.success()) {
        return None;
    }
    let server = Command::new("openssl")
        .args(["s_server", "-quiet", "-www", "-accept", &format!("{ORIGIN}:443")])
        .arg("-cert")
        .arg(&certificate)
        .arg("-key")
        .arg(&key)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let listens = || TcpStream::connect((ORIGIN, 443)).ok().map(drop);
    belljar_testkit::wait_until(PATIENCE, listens)?;
    Some(server)
}

/// The link between the two namespaces, and the world's addresses.
fn join(edge: &impl AsFd) {
    let mut netlink = Socket::route().expect("netlink");
    let end = |name, last| End { name, index: LINK, hardware_address: [2, 0, 0, 0, 1, last] };
    route::add_pair(&mut netlink, end("edge", 1), end("uplink", 2), edge.as_fd()).expect("veth");
    let addresses = [(ORIGIN, 24), (OTHER, 24), (RESOLVER, 24), (ORIGIN_V6, 64), (PRIVATE, 24)];
    configure(&addresses);
}

fn configure(addresses: &[(&str, u8)]) {
    let mut netlink = Socket::route().expect("netlink");
    let mut settings = vec![Setting::Up { link: LOOPBACK }, Setting::Up { link: LINK }];
    for (text, prefix) in addresses {
        let address: IpAddr = text.parse().expect("an address");
        settings.push(Setting::Address { link: LINK, address, prefix: *prefix });
        settings.push(Setting::Own { link: LINK, address });
    }
    route::apply(&mut netlink, &settings).expect("our own namespace");
}

type Handler = fn(TcpStream);

fn serve(address: &str, port: u16, reached: &Arc<Mutex<Vec<SocketAddr>>>, handler: Handler) {
    let address: IpAddr = address.parse().expect("an address");
    let listener = TcpListener::bind((address, port)).expect("an address of ours");
    let reached = Arc::clone(reached);
    thread::spawn(move || {
        for connection in listener.incoming().flatten() {
            let local = connection.local_addr().expect("connected");
            reached.lock().expect("no test panics with it").push(local);
            let _ = connection.set_read_timeout(Some(PATIENCE));
            thread::spawn(move || handler(connection));
        }
    });
}

fn answer_web(mut connection: TcpStream) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") && head.len() < 8192 {
        match connection.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return,
        }
    }
    let body = format!("hello from {}", connection.local_addr().expect("connected").ip());
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    let _ = connection.write_all(answer.as_bytes());
}

fn answer_echo(mut connection: TcpStream) {
    let mut buffer = [0; 1024];
    let mut sent = connection.write_all(b"hello\n");
    while sent.is_ok() {
        match connection.read(&mut buffer) {
            Ok(length @ 1..) => sent = connection.write_all(&buffer[..length]),
            _ => return,
        }
    }
}

fn send_back(socket: &UdpSocket) {
    let mut buffer = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let _ = socket.send_to(&buffer[..length], from);
    }
}

/// Answers questions for addresses from the zone; everything else does not exist.
fn resolve(
    socket: &UdpSocket,
    zone: &Mutex<HashMap<String, Vec<IpAddr>>>,
    asked: &Mutex<Vec<String>>,
) {
    let mut buffer = [0; 1500];
    while let Ok((length, from)) = socket.recv_from(&mut buffer) {
        let question = &buffer[..length];
        let Some((name, kind, end)) = read_question(question) else { continue };
        asked.lock().expect("no test panics with it").push(name.clone());
        let mut zone = zone.lock().expect("no test panics with it");
        let known = zone.get_mut(&name);
        let exists = known.is_some();
        let addresses = known.map(|addresses| {
            let fits = |address: &IpAddr| match kind {
                1 => address.is_ipv4(),
                28 => address.is_ipv6(),
                _ => false,
            };
            let first = addresses.iter().copied().find(fits);
            if first.is_some() && addresses.len() > 1 {
                addresses.remove(0);
            }
            first
        });
        let answer = addresses.flatten();
        let mut reply = question[..2].to_vec();
        reply.extend([0x81, if exists { 0x80 } else { 0x83 }]);
        reply.extend([0, 1, 0, u8::from(answer.is_some()), 0, 0, 0, 0]);
        reply.extend(&question[12..end]);
        if let Some(address) = answer {
            let octets = match address {
                IpAddr::V4(address) => address.octets().to_vec(),
                IpAddr::V6(address) => address.octets().to_vec(),
            };
            reply.extend([0xc0, 12, 0, kind as u8, 0, 1, 0, 0, 0, 1]);
            reply.extend([0, octets.len() as u8]);
            reply.extend(octets);
        }
        let _ = socket.send_to(&reply, from);
    }
}

/// The name in lower case, the type, and where the question ends.
fn read_question(message: &[u8]) -> Option<(String, u16, usize)> {
    let mut labels = Vec::new();
    let mut at = 12;
    loop {
        let length = usize::from(*message.get(at)?);
        at += 1;
        if length == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(message.get(at..at + length)?).to_lowercase());
        at += length;
    }
    let kind = u16::from_be_bytes([*message.get(at)?, *message.get(at + 1)?]);
    Some((labels.join("."), kind, at + 4))
}
