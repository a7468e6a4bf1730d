//! Ways into the sandbox: a stream of a host joined to a port at which something inside listens.
//!
//! The agent connects to the sandbox's own loopback, so a host reaches nothing but this sandbox, whatever its network. Bytes
//! go both ways under the protocol's windows: whoever does not read holds up only the other end of the same tunnel.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use belljar_protocol::MAX_CHUNK;
use belljar_protocol::v1::{
    Acknowledge, Channel, Closed, Connect, Connected, Data, Done, frame::Body,
};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType, connect, recv, send,
    shutdown, socket_with, sockopt,
};

use crate::agent::Agent;
use crate::connection::{Connection, Use};
use crate::failure::{Problem, Result, invalid};
use crate::poller::{EventFlags, Poller, Token, Watched};

/// Tunnels at once.
const MOST_TUNNELS: usize = 512;

#[derive(Debug)]
pub(crate) struct Tunnel {
    connection: u32,
    stream: u64,
    port: u16,
    socket: Watched,
    state: State,
    /// On the way to the host: sent, and acknowledged by it.
    sent: u64,
    acknowledged: u64,
    /// Whoever listens sends no more.
    said_all: bool,
    /// From the host, on the way in.
    queue: Vec<u8>,
    taken: usize,
    /// Taken since the beginning.
    offset: u64,
    /// The host sends no more; whoever listens is told once the queue is empty.
    ending: bool,
    heard_all: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Which loopback is being tried.
    Connecting(Loopback),
    Open,
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loopback {
    V4,
    V6,
}

impl Agent {
    pub(crate) fn connect(&mut self, connection: u32, stream: u64, request: &Connect) -> Result {
        self.setup()?;
        let port = u16::try_from(request.port).ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| invalid("a port is a number from 1 to 65535"))?;
        if self.tunnels.len() >= MOST_TUNNELS {
            return Err(Problem::new("busy", "too many connections into the sandbox at once"));
        }
        let key = self.new_id();
        let (socket, loopback) = dial(&self.poller, key, port, Loopback::V4)?;
        let tunnel = Tunnel {
            connection,
            stream,
            port,
            socket,
            state: State::Connecting(loopback),
            sent: 0,
            acknowledged: 0,
            said_all: false,
            queue: Vec::new(),
            taken: 0,
            offset: 0,
            ending: false,
            heard_all: false,
        };
        self.tunnels.insert(key, tunnel);
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.streams.insert(stream, Use::Tunnel(key));
        }
        Ok(())
    }

    pub(crate) fn on_tunnel(&mut self, key: u32) {
        let window = self.window() as u64;
        let Some(tunnel) = self.tunnels.get_mut(key) else { return };
        let Some(connection) = self.connections.get_mut(tunnel.connection) else { return };
        match tunnel.state {
            State::Connecting(loopback) => {
                tunnel.see_connected(&self.poller, key, loopback, connection);
            }
            State::Open => {
                tunnel.send_queue(connection);
                tunnel.receive(connection, window, &mut self.scratch);
            }
            State::Over => {}
        }
    }

    /// Ends what is over, and waits for what is wanted of the rest.
    pub(crate) fn relay_tunnels(&mut self) {
        let window = self.window() as u64;
        let mut over = Vec::new();
        for (key, tunnel) in self.tunnels.iter_mut() {
            let Some(connection) = self.connections.get_mut(tunnel.connection) else { continue };
            if tunnel.said_all && tunnel.heard_all && tunnel.state == State::Open {
                connection.send(tunnel.stream, Body::Closed(Closed {}));
                tunnel.state = State::Over;
            }
            tunnel.update_interest(connection, window);
            if tunnel.state == State::Over {
                over.push(key);
            }
        }
        for key in over {
            self.end_tunnel(key);
        }
    }

    pub(crate) fn acknowledge_tunnel(&mut self, key: u32, offset: u64) {
        if let Some(tunnel) = self.tunnels.get_mut(key) {
            tunnel.acknowledged = tunnel.acknowledged.max(offset.min(tunnel.sent));
        }
    }

    /// Bytes from the host.
    pub(crate) fn feed_tunnel(&mut self, key: u32, data: &Data) {
        let window = self.window();
        let Some(tunnel) = self.tunnels.get_mut(key) else { return };
        let Some(connection) = self.connections.get_mut(tunnel.connection) else { return };
        let waiting = tunnel.queue.len() - tunnel.taken;
        if data.data.len() > MAX_CHUNK || waiting + data.data.len() > window + MAX_CHUNK {
            let problem = Problem::new("window-exceeded", "more data than was acknowledged");
            tunnel.fail(connection, problem);
            return;
        }
        tunnel.queue.extend_from_slice(&data.data);
        tunnel.ending |= data.end;
        tunnel.send_queue(connection);
    }

    pub(crate) fn cancel_tunnel(&mut self, key: u32) -> Option<Body> {
        self.end_tunnel(key);
        Some(Body::Done(Done { size: 0 }))
    }

    pub(crate) fn end_tunnel(&mut self, key: u32) {
        let Some(tunnel) = self.tunnels.remove(key) else { return };
        if let Some(connection) = self.connections.get_mut(tunnel.connection) {
            connection.streams.remove(tunnel.stream);
        }
    }
}

impl Tunnel {
    /// The attempt under way has succeeded or failed.
    fn see_connected(
        &mut self,
        poller: &Poller,
        key: u32,
        loopback: Loopback,
        connection: &mut Connection,
    ) {
        let refused = match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => {
                self.state = State::Open;
                connection.send(self.stream, Body::Connected(Connected {}));
                return;
            }
            Ok(Err(errno)) | Err(errno) => errno,
        };
        let next = match loopback {
            Loopback::V4 => dial(poller, key, self.port, Loopback::V6),
            Loopback::V6 => Err(unreachable(refused)),
        };
        match next {
            Ok((socket, loopback)) => {
                (self.socket, self.state) = (socket, State::Connecting(loopback));
            }
            Err(problem) => self.fail(connection, problem),
        }
    }

    fn receive(&mut self, connection: &mut Connection, window: u64, scratch: &mut [u8]) {
        if self.said_all || !self.may_send(connection, window) {
            return;
        }
        match recv(&self.socket, &mut scratch[..], RecvFlags::empty()) {
            Ok((0, _)) => {
                self.said_all = true;
                connection.send(self.stream, Body::Data(Data { data: Vec::new(), end: true }));
            }
            Ok((size, _)) => {
                self.sent += size as u64;
                let data = scratch.get(..size).unwrap_or_default().to_vec();
                connection.send(self.stream, Body::Data(Data { data, end: false }));
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => self.fail(connection, unreachable(errno)),
        }
    }

    /// Passes on what the host has sent, as far as it is taken.
    fn send_queue(&mut self, connection: &mut Connection) {
        if self.state != State::Open || self.heard_all {
            return;
        }
        let before = self.offset;
        while self.taken < self.queue.len() {
            match send(&self.socket, &self.queue[self.taken..], SendFlags::NOSIGNAL) {
                Ok(size) => {
                    self.taken += size;
                    self.offset += size as u64;
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(errno) => return self.fail(connection, unreachable(errno)),
            }
        }
        if self.taken == self.queue.len() {
            self.queue = Vec::new();
            self.taken = 0;
            if self.ending {
                self.heard_all = true;
                let _ = shutdown(&self.socket, Shutdown::Write);
            }
        }
        if self.offset > before {
            let acknowledge = Acknowledge { channel: Channel::Stdin.into(), offset: self.offset };
            connection.send(self.stream, Body::Acknowledge(acknowledge));
        }
    }

    fn may_send(&self, connection: &mut Connection, window: u64) -> bool {
        if !connection.has_room() {
            connection.starved = true;
            return false;
        }
        self.sent - self.acknowledged < window
    }

    fn update_interest(&mut self, connection: &mut Connection, window: u64) {
        let mut interest = EventFlags::empty();
        match self.state {
            State::Connecting(_) => interest = EventFlags::OUT,
            State::Open => {
                let reads = !self.said_all && self.may_send(connection, window);
                interest.set(EventFlags::IN, reads);
                interest.set(EventFlags::OUT, !self.queue.is_empty());
            }
            State::Over => {}
        }
        if self.socket.set_interest(interest).is_err() {
            self.fail(connection, Problem::new("io-error", "the connection cannot be waited for"));
        }
    }

    fn fail(&mut self, connection: &mut Connection, problem: Problem) {
        if self.state != State::Over {
            self.state = State::Over;
            connection.send(self.stream, problem);
        }
    }
}

/// Begins to connect to a port of the sandbox itself; where one version of the protocol cannot, the other is tried.
fn dial(poller: &Poller, key: u32, port: u16, loopback: Loopback) -> Result<(Watched, Loopback)> {
    let (family, address) = match loopback {
        Loopback::V4 => (AddressFamily::INET, SocketAddr::from((Ipv4Addr::LOCALHOST, port))),
        Loopback::V6 => (AddressFamily::INET6, SocketAddr::from((Ipv6Addr::LOCALHOST, port))),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let begun = socket_with(family, SocketType::STREAM, flags, None).and_then(|socket| {
        // Small pieces must not wait for more to come.
        sockopt::set_tcp_nodelay(&socket, true)?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS) => Ok(socket),
            Err(errno) => Err(errno),
        }
    });
    match (begun, loopback) {
        (Ok(socket), _) => Ok((poller.own(socket, Token::Tunnel(key)), loopback)),
        (Err(_), Loopback::V4) => dial(poller, key, port, Loopback::V6),
        (Err(errno), Loopback::V6) => Err(unreachable(errno)),
    }
}

fn unreachable(errno: Errno) -> Problem {
    let code = match errno {
        // A sandbox without the newer protocol says so where nobody listens.
        Errno::CONNREFUSED | Errno::AFNOSUPPORT | Errno::ADDRNOTAVAIL => "connection-refused",
        _ => "connection-lost",
    };
    Problem::new(code, "").at("connect").because(errno.raw_os_error())
}
