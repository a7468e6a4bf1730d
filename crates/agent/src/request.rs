//! What the host asks: one function that reads like the protocol's table of contents.

use belljar_protocol::v1::{
    Configure, Configured, Done, Frame, Hello, Lease as LeaseMessage, Pong, Start, TreeKill,
    Welcome, frame::Body, start,
};
use belljar_protocol::{MAX_FRAME, negotiate};
use belljar_sys::netlink;

use crate::agent::Agent;
use crate::connection::Use;
use crate::failure::{Problem, Result, invalid};
use crate::lease::Lease;
use crate::memory::MemoryWatch;
use crate::prepare::is_init;
use crate::service::Service;
use crate::setup::{Setup, narrow_bounding_set};
use crate::tools::Tools;
use crate::tree::cgroup::Cgroups;

/// What is answered at once; nothing where frames follow.
type Answer = Option<Body>;

impl Agent {
    pub(crate) fn request(&mut self, connection: u32, frame: Frame) {
        let Frame { stream, body } = frame;
        let greeted = self.connections.get(connection).is_some_and(|known| known.greeted);
        let answer = match body {
            Some(Body::Hello(hello)) => self.greet(connection, &hello),
            _ if !greeted => Err(Problem::new("hello-expected", "the first frame must be Hello")),
            Some(body) => self.dispatch(connection, stream, body),
            None => Err(Problem::new("unknown-request", "this version does not know the request")),
        };
        match answer {
            Ok(Some(body)) => self.reply(connection, stream, body),
            Ok(None) => {}
            Err(problem) => self.reply(connection, stream, problem),
        }
        // Whoever does not manage to say hello is not listened to any further.
        if let Some(known) = self.connections.get_mut(connection)
            && !known.greeted
        {
            known.close();
        }
    }

    fn dispatch(&mut self, connection: u32, stream: u64, body: Body) -> Result<Answer> {
        Ok(match body {
            Body::Ping(_) => Some(Body::Pong(Pong {})),
            Body::Configure(configure) => Some(self.configure(configure)?),
            Body::Lease(lease) => {
                self.setup()?;
                self.grant(&lease);
                done()
            }
            Body::Usage(_) => Some(Body::UsageReport(self.usage())),

            Body::Start(start) => {
                self.open_stream(connection, stream)?;
                self.follow_layer()?;
                let started = self.start(connection, stream, &start);
                if started.is_err() {
                    self.note_denied(&start);
                }
                started?;
                None
            }
            Body::Attach(attach) => {
                self.open_stream(connection, stream)?;
                self.attach(connection, stream, &attach)?;
                None
            }
            Body::Kill(kill) => {
                self.kill(&kill)?;
                done()
            }
            Body::Resize(resize) => {
                self.resize(&resize.process, resize.rows, resize.columns)?;
                done()
            }
            Body::Forget(forget) => {
                let forgotten = self.forget(&forget.process);
                if forget.silent {
                    return Ok(None);
                }
                forgotten?;
                done()
            }
            Body::Cancel(cancel) => match self.stream_use(connection, stream) {
                Some(Use::Worker(key)) => self.cancel_worker(key),
                Some(Use::Tunnel(key)) => self.cancel_tunnel(key),
                _ => {
                    self.cancel(&cancel.process, cancel.grace_ms)?;
                    done()
                }
            },
            Body::ListProcesses(_) => Some(Body::ProcessList(self.list_processes())),

            Body::ReadFile(_)
            | Body::WriteFile(_)
            | Body::Stat(_)
            | Body::List(_)
            | Body::MakeDirectory(_)
            | Body::Move(_)
            | Body::Remove(_)
            | Body::ChangeMode(_)
            | Body::MakeLink(_)
            | Body::Watch(_) => {
                self.open_stream(connection, stream)?;
                self.follow_layer()?;
                self.start_worker(connection, stream, body)?;
                None
            }

            Body::Connect(connect) => {
                self.open_stream(connection, stream)?;
                self.connect(connection, stream, &connect)?;
                None
            }

            Body::FindOwners(question) => Some(self.find_owners(&question)?),

            // These belong to a stream; one that has just ended on our side is no error of the host's.
            Body::Acknowledge(acknowledge) => {
                match self.stream_use(connection, stream) {
                    Some(Use::Process(key)) => self.acknowledge(key, &acknowledge),
                    Some(Use::Worker(key)) => self.acknowledge_worker(key, acknowledge.offset),
                    Some(Use::Tunnel(key)) => self.acknowledge_tunnel(key, acknowledge.offset),
                    None => {}
                }
                None
            }
            Body::Input(input) => {
                if let Some(Use::Process(key)) = self.stream_use(connection, stream) {
                    self.input(connection, stream, key, &input);
                }
                None
            }
            Body::Data(data) => {
                match self.stream_use(connection, stream) {
                    Some(Use::Worker(key)) => self.feed_worker(key, data),
                    Some(Use::Tunnel(key)) => self.feed_tunnel(key, &data),
                    _ => {}
                }
                None
            }

            Body::ServeTools(serve) => {
                match serve.withdrawn {
                    true => self.lose_tool_server(connection),
                    false => self.serve_tools(connection)?,
                }
                done()
            }
            Body::ToolAnswer(answer) => {
                self.answer_caller(connection, answer);
                None
            }

            _ => return Err(invalid("this is not for a host to send")),
        })
    }

    fn follow_layer(&mut self) -> Result<()> {
        self.setup.as_mut().map_or(Ok(()), Setup::follow_layer)
    }

    fn greet(&mut self, connection: u32, hello: &Hello) -> Result<Answer> {
        let version = negotiate(hello).ok_or_else(|| {
            Problem::new("version-unsupported", "no protocol version is known to both")
        })?;
        if let Some(known) = self.connections.get_mut(connection) {
            known.greeted = true;
        }
        Ok(Some(Body::Welcome(Welcome {
            version,
            max_frame: MAX_FRAME as u32,
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            configured: self.setup.is_some(),
        })))
    }

    /// Happens once. What can fail comes first, so that a refused configuration leaves nothing behind.
    fn configure(&mut self, configure: Configure) -> Result<Body> {
        if self.setup.is_some() {
            return Err(Problem::new("already-configured", "a sandbox is configured once"));
        }
        let lease = configure.lease;
        let memory_limit = configure.memory_watch_bytes;
        let root_capabilities = configure.root_capabilities;
        let hostname = configure.hostname.clone();
        let service_socket = configure.service_socket.clone();
        let tool_socket = configure.tool_socket.clone();
        let finds_owners = configure.find_owners;
        let (mut setup, walls) = Setup::new(configure, self.own_files, self.host)?;
        if !hostname.is_empty() {
            set_hostname(&hostname)?;
        }
        if setup.tree_kill == TreeKill::Cgroup {
            let directory = self.cgroup.as_ref().ok_or_else(|| {
                Problem::new("tree-kill-unavailable", "the agent was given no cgroup").at("cgroup")
            })?;
            let failed = |error| Problem::system("tree-kill-unavailable", "cgroup", &error);
            let directory = directory.try_clone().map_err(failed)?;
            self.cgroups = Some(Cgroups::new(directory, &self.poller).map_err(failed)?);
        }
        if !service_socket.is_empty() {
            self.service = Some(Service::new(&service_socket, &self.poller)?);
        }
        if !tool_socket.is_empty() {
            self.tools = Some(Tools::new(&tool_socket, &self.poller, self.now)?);
        }
        // A kernel that does not show it is no reason to fail: then nobody's process is known.
        self.sockets = finds_owners.then(netlink::Socket::sockets).and_then(Result::ok);
        narrow_bounding_set(root_capabilities);
        setup.close_in()?;
        self.memory = MemoryWatch::new(memory_limit, self.now);
        self.setup = Some(setup);
        if let Some(lease) = lease {
            self.grant(&lease);
        }
        Ok(Body::Configured(Configured {
            landlock_version: walls.landlock_version,
            landlock_missing: walls.landlock_missing,
        }))
    }

    fn grant(&mut self, lease: &LeaseMessage) {
        self.lease = Lease::grant(lease, self.now);
    }

    /// Checks that a number can be used for a new stream.
    fn open_stream(&self, connection: u32, stream: u64) -> Result {
        if stream == 0 {
            return Err(invalid("a request needs a stream number"));
        }
        match self.stream_use(connection, stream) {
            // A stream that has ended but can still be acknowledged may be replaced.
            Some(Use::Process(key))
                if self.processes.get(key).is_none_or(|process| process.has_told_close()) =>
            {
                Ok(())
            }
            Some(_) => Err(Problem::new("stream-in-use", "another request uses this stream")),
            None => Ok(()),
        }
    }

    fn stream_use(&self, connection: u32, stream: u64) -> Option<Use> {
        self.connections.get(connection)?.streams.get(stream).copied()
    }

    /// A program outside the list was asked for by the host itself.
    fn note_denied(&mut self, start: &Start) {
        let Some(start::Program::Argv(argv)) = &start.program else { return };
        let Some(name) = argv.args.first() else { return };
        if self.setup.as_ref().is_some_and(|setup| !setup.allows_program(name)) {
            self.events.push(name, 0);
        }
    }
}

impl Agent {
    fn cancel_worker(&mut self, key: u32) -> Answer {
        self.end_worker(key);
        done()
    }
}

fn done() -> Answer {
    Some(Body::Done(Done { size: 0 }))
}

/// Only ever the sandbox's own name: an agent that is not PID 1 has no machine of its own.
fn set_hostname(name: &str) -> Result {
    let current = rustix::system::uname();
    if !is_init() || current.nodename().to_bytes() == name.as_bytes() {
        return Ok(());
    }
    rustix::system::sethostname(name.as_bytes())
        .map_err(|errno| Problem::system("hostname-failed", "sethostname", &errno.into()))
}
