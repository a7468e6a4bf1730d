//! The agent's state and its loop.
//!
//! One turn: wait, handle every event, do what is due, then let everything flow that can. Handlers change state and
//! note which processes have something to deliver; only the last step writes to connections.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use belljar_protocol::MAX_CHUNK;
use belljar_protocol::v1::{Event, LeaseEnded, event, frame::Body};
use belljar_sys::message;
use belljar_sys::netlink;
use belljar_sys::signals::SignalDescriptor;
use belljar_sys::socket::peer_user;
use belljar_sys::workload::Limit;
use rustix::net::{SocketFlags, accept_with};
use rustix::process::Signal;

use crate::connection::{Connection, Use};
use crate::failure::{Problem, Result};
use crate::files::Worker;
use crate::lease::{Ended, Lease};
use crate::memory::MemoryWatch;
use crate::oom_score::OomScore;
use crate::poller::{EventFlags, Poller, Token, Watched};
use crate::prepare::Inherited;
use crate::process::Process;
use crate::service::{Events, Service};
use crate::setup::Setup;
use crate::table::Table;
use crate::tools::Tools;
use crate::tree::cgroup::Cgroups;
use crate::tunnel::Tunnel;

/// Both ends of a pipe.
pub(crate) type Pipe = (OwnedFd, OwnedFd);

#[derive(Debug)]
pub(crate) struct Agent {
    pub(crate) poller: Poller,
    /// Where hosts come from: a socket that listens, or one on which they are handed over.
    arrivals: Watched,
    handed: bool,
    /// Who hosts are, where a program inside could be the same. None ever is.
    pub(crate) host: Option<u32>,
    /// Only their connections are taken, where the socket is in everyone's reach.
    ask_who: bool,
    signals: SignalDescriptor,
    pub(crate) connections: Table<u32, Connection>,
    pub(crate) processes: Table<u32, Process>,
    pub(crate) workers: Table<u32, Worker>,
    pub(crate) tunnels: Table<u32, Tunnel>,
    /// Whom we have to wait for; everyone else that ends is an orphan that became ours.
    pub(crate) children: Table<i32, Child>,
    pub(crate) setup: Option<Setup>,
    /// Our own cgroup, until it is used.
    pub(crate) cgroup: Option<OwnedFd>,
    pub(crate) cgroups: Option<Cgroups>,
    pub(crate) oom_score: OomScore,
    /// The workload's limit on descriptors, unless it is given another.
    pub(crate) own_files: Limit,
    pub(crate) lease: Lease,
    pub(crate) memory: Option<MemoryWatch>,
    pub(crate) service: Option<Service>,
    pub(crate) events: Events,
    pub(crate) tools: Option<Tools>,
    /// The kernel's table of sockets, where the host asks whose connections are.
    pub(crate) sockets: Option<netlink::Socket>,
    /// This kernel's pipes belong to who makes them, for good.
    pub(crate) pipes_are_owned: bool,
    /// Whether anything was ever started.
    pub(crate) has_started: bool,
    /// Whether no file system in sight can keep who looks at it waiting for ever, once that was looked at.
    pub(crate) files_answer: Option<bool>,
    /// For children that are waited for, one after the other.
    pub(crate) status_pipe: Option<Pipe>,
    /// Processes that may have something to deliver, or to be forgotten.
    pub(crate) dirty: Vec<u32>,
    /// A supervisor was killed; its orphans are being killed.
    pub(crate) sweeping: bool,
    pub(crate) started: Instant,
    /// The time of this turn.
    pub(crate) now: Instant,
    /// For whatever is read.
    pub(crate) scratch: Vec<u8>,
    /// When to give back memory that was in use before.
    trim_at: Option<Instant>,
    last_id: u32,
    leaving: bool,
}

/// What a child that we started is to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Child {
    Main(u32),
    Supervisor(u32),
    Worker(u32),
}

/// Hosts connected at once.
const MOST_CONNECTIONS: usize = 16;

/// How long buffers keep their memory.
const TRIM: Duration = Duration::from_secs(1);

/// How long the last words may take.
const FAREWELL: Duration = Duration::from_millis(200);

impl Agent {
    pub(crate) fn new(
        inherited: Inherited,
        oom_score: OomScore,
        own_files: Limit,
        signals: SignalDescriptor,
    ) -> io::Result<Self> {
        let poller = Poller::new()?;
        let mut arrivals = poller.own(inherited.arrivals, Token::Listener);
        arrivals.set_interest(EventFlags::IN)?;
        poller.watch(signals.as_fd(), Token::Signals)?;
        let now = Instant::now();
        Ok(Self {
            poller,
            arrivals,
            handed: inherited.handed,
            host: inherited.host,
            ask_who: inherited.ask_who,
            signals,
            connections: Table::default(),
            processes: Table::default(),
            workers: Table::default(),
            tunnels: Table::default(),
            children: Table::default(),
            setup: None,
            cgroup: inherited.cgroup,
            cgroups: None,
            oom_score,
            own_files,
            lease: Lease::endless(now),
            memory: None,
            service: None,
            events: Events::default(),
            tools: None,
            sockets: None,
            pipes_are_owned: false,
            has_started: false,
            files_answer: None,
            status_pipe: None,
            dirty: Vec::new(),
            sweeping: false,
            started: now,
            now,
            scratch: vec![0; MAX_CHUNK],
            trim_at: None,
            last_id: 0,
            leaving: false,
        })
    }

    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = Vec::new();
        loop {
            self.poller.wait(&mut events, self.timeout())?;
            self.now = Instant::now();
            for &(token, _) in &events {
                self.handle(token);
            }
            self.meet_deadlines();
            self.check_lease();
            if self.leaving {
                return Ok(()); // whoever was killed by that did not end by itself, and is not told of as if
            }
            if let Some(service) = &mut self.service {
                service.expire(self.now);
            }
            self.expire_callers();
            self.settle();
            // Nobody waits for this one, and it takes a while.
            self.watch_memory();
            self.trim();
        }
    }

    fn handle(&mut self, token: Token) {
        match token {
            Token::Listener => self.accept(),
            Token::Signals => self.on_signals(),
            Token::Service => self.on_service(),
            Token::Guest(id) => self.on_guest(id),
            Token::Connection(id) => {
                if let Some(connection) = self.connections.get_mut(id) {
                    connection.receive(&mut self.scratch);
                }
                self.take_requests(id);
            }
            Token::Status(key) => self.on_status(key),
            Token::Output(key) => self.on_output(key, 0),
            Token::Error(key) => self.on_output(key, 1),
            Token::Input(key) => self.on_input(key),
            Token::Supervisor(key) => {
                self.on_supervisor(key);
            }
            Token::Tree(number) => self.on_tree(number),
            Token::Worker(key) => self.on_worker(key),
            Token::Tunnel(key) => self.on_tunnel(key),
            Token::Tools => self.on_tools(),
            Token::Caller(id) => self.on_caller(id),
        }
    }

    fn accept(&mut self) {
        let Some(socket) = self.next_arrival() else { return };
        if self.connections.len() >= MOST_CONNECTIONS || !self.is_host(&socket) {
            return;
        }
        let id = self.new_id();
        let socket = self.poller.own(socket, Token::Connection(id));
        self.connections.insert(id, Connection::new(socket));
    }

    fn is_host(&self, socket: &OwnedFd) -> bool {
        !self.ask_who || peer_user(socket).is_ok_and(|user| Some(user) == self.host)
    }

    fn next_arrival(&mut self) -> Option<OwnedFd> {
        if !self.handed {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            return accept_with(&self.arrivals, flags).ok();
        }
        match message::receive(&self.arrivals, &mut [0; 8]) {
            Ok((0, _)) => {
                self.leave(None); // nobody can come any more
                None
            }
            Ok((_, sockets)) => {
                let socket = sockets.into_iter().next()?;
                rustix::io::ioctl_fionbio(&socket, true).ok()?;
                Some(socket)
            }
            Err(_) => None,
        }
    }

    fn on_signals(&mut self) {
        while let Some(signal) = self.signals.next() {
            match signal {
                Signal::CHILD => self.reap(),
                _ => self.leave(None),
            }
        }
    }

    fn on_output(&mut self, key: u32, index: usize) {
        let window = self.window();
        if let Some(process) = self.processes.get_mut(key) {
            process.read(index, window, &mut self.scratch);
            self.dirty.push(key);
        }
    }

    /// Takes every request that has arrived, as long as there is room for answers.
    fn take_requests(&mut self, id: u32) -> bool {
        let mut any = false;
        while let Some(frame) = self.connections.get_mut(id).and_then(Connection::next_frame) {
            any = true;
            // Asking whose connections are is no attention to the sandbox.
            if !matches!(frame.body, Some(Body::FindOwners(_))) {
                self.lease.touch(self.now);
            }
            self.request(id, frame);
        }
        any
    }

    fn check_lease(&mut self) {
        if let Some(ended) = self.lease.check(self.has_running(), self.now) {
            self.leave(Some(ended));
        }
    }

    /// Lets everything flow that can: output to connections, answers to hosts, and requests that had to wait.
    fn settle(&mut self) {
        loop {
            self.deliver();
            self.relay_workers();
            self.relay_tunnels();
            self.announce();
            let mut again = false;
            for id in self.connections.keys() {
                let Some(connection) = self.connections.get_mut(id) else { continue };
                connection.flush();
                if connection.is_over() {
                    self.disconnect(id);
                    continue;
                }
                if connection.has_room() {
                    if std::mem::take(&mut connection.starved) {
                        again = true;
                        self.dirty.extend(connection.streams.values().filter_map(|u| match u {
                            Use::Process(key) => Some(*key),
                            Use::Worker(_) | Use::Tunnel(_) => None,
                        }));
                    }
                    again |= self.take_requests(id);
                }
            }
            if !again && self.dirty.is_empty() {
                return;
            }
        }
    }

    fn deliver(&mut self) {
        let window = self.window();
        if !self.dirty.is_empty() {
            self.trim_at.get_or_insert(self.now + TRIM);
        }
        for key in std::mem::take(&mut self.dirty) {
            let Some(process) = self.processes.get_mut(key) else { continue };
            if let Some(connection) =
                process.listener().and_then(|(connection, _)| self.connections.get_mut(connection))
            {
                process.deliver(connection);
            }
            process.update_interest(window);
            if process.is_over() {
                self.processes.remove(key);
            }
        }
    }

    /// Gives memory of buffers back that have stayed empty: making them anew for every piece would take longer than
    /// passing the piece on.
    fn trim(&mut self) {
        if self.trim_at.is_some_and(|at| at <= self.now) {
            self.trim_at = None;
            self.connections.values_mut().for_each(Connection::trim);
            self.processes.values_mut().for_each(Process::trim);
        }
    }

    /// Tells every connected host what happened without being asked.
    fn announce(&mut self) {
        let is_host = |connection: &&mut Connection| connection.greeted;
        while !self.events.is_empty()
            && self.connections.values_mut().any(|host| host.greeted && host.has_room())
        {
            let Some(event) = self.events.pop() else { return };
            for connection in self.connections.values_mut().filter(is_host) {
                connection.send(0, Body::Event(event.clone()));
            }
        }
    }

    /// A host is gone. Processes go on; only what was done for this connection alone ends with it.
    fn disconnect(&mut self, id: u32) {
        let Some(connection) = self.connections.remove(id) else { return };
        self.lose_tool_server(id);
        for &what in connection.streams.values() {
            match what {
                Use::Process(key) => {
                    if let Some(process) = self.processes.get_mut(key) {
                        process.lose_listener(id);
                        self.dirty.push(key);
                    }
                }
                Use::Worker(key) => self.end_worker(key),
                Use::Tunnel(key) => self.end_tunnel(key),
            }
        }
    }

    /// Ends the sandbox: passes on what is there, says so, kills everything, goes. As PID 1 the kernel kills whoever is
    /// left.
    pub(crate) fn leave(&mut self, ended: Option<Ended>) {
        self.leaving = true;
        self.settle();
        if let Some(ended) = ended {
            let what = event::What::LeaseEnded(LeaseEnded { idle: ended == Ended::Idle });
            let event = Event { what: Some(what) };
            for connection in self.connections.values_mut().filter(|host| host.greeted) {
                connection.send(0, Body::Event(event.clone()));
                connection.flush();
            }
        }
        self.kill_everything();
        for worker in self.workers.keys() {
            self.end_worker(worker);
        }
        // Whoever is not PID 1 has nobody to kill the rest, so wait for it.
        let mut events = Vec::new();
        let end = Instant::now() + FAREWELL;
        self.kill_direct();
        while self.has_trees() && self.now < end {
            if self.poller.wait(&mut events, Some(end - self.now)).is_err() {
                break;
            }
            self.now = Instant::now();
            while self.signals.next().is_some() {}
            self.reap();
            for &(token, _) in &events {
                match token {
                    Token::Supervisor(key) => drop(self.on_supervisor(key)),
                    Token::Tree(number) => self.on_tree(number),
                    _ => {}
                }
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let running = self.has_running();
        let processes = self.processes.values().filter_map(Process::deadline).min();
        let lease = self.lease.next_check(running);
        let memory = self.memory.and_then(|watch| watch.next_check(self.has_trees()));
        let service = self.service.as_ref().and_then(Service::next_check);
        let tools = self.tools.as_ref().and_then(Tools::next_check);
        let due = [processes, lease, memory, service, tools, self.trim_at];
        let next = due.into_iter().flatten().min()?;
        Some(next.saturating_duration_since(self.now))
    }

    fn has_running(&self) -> bool {
        self.processes.values().any(Process::is_running)
    }

    /// Whether anything of the workload may be alive.
    pub(crate) fn has_trees(&self) -> bool {
        self.processes.values().any(|process| process.tree.is_some())
    }

    pub(crate) fn setup(&self) -> Result<&Setup> {
        self.setup.as_ref().ok_or_else(|| Problem::new("not-configured", "send Configure first"))
    }

    pub(crate) fn window(&self) -> usize {
        self.setup.as_ref().map_or(0, |setup| setup.window)
    }

    /// A number that was not used before. They run out after four billion processes, requests and connections.
    pub(crate) fn new_id(&mut self) -> u32 {
        self.last_id = self.last_id.wrapping_add(1);
        self.last_id
    }

    pub(crate) fn reply(&mut self, connection: u32, stream: u64, body: impl Into<Body>) {
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.send(stream, body);
        }
    }
}
