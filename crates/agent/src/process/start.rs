//! Starting a process: pipes or a terminal, a tree to start it in, the clone; and what the child says about it.
//!
//! Nothing here waits for a child that others could hold up: the workload's user may stop it as soon as it has become that
//! user.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use belljar_protocol::v1::{Start, Terminal, TreeKill};
use belljar_sys::fork;
use belljar_sys::workload::{Failed, Launch, Planned, STATUS_SIZE, Stage, Streams};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Uid;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::plan::Plan;
use super::{Channel, Feed, Listener, Process};
use crate::agent::{Agent, Child, Pipe};
use crate::connection::Use;
use crate::failure::{Problem, Result, invalid};
use crate::mounts;
use crate::poller::{EventFlags, Token};
use crate::prepare::is_init;
use crate::remains;
use crate::tree::Tree;
use crate::tree::direct::Direct;
use crate::tree::supervisor::{self, Report, Supervisor};

/// Records kept at once, running or not.
const MOST_PROCESSES: usize = 1024;

const LONGEST_NAME: usize = 128;

/// How long a process is young. Most commands have ended by then.
const YOUTH: Duration = Duration::from_millis(2);

/// The child's ends. Those of its output are kept while it is young, the others are closed once it has them.
#[derive(Debug)]
struct Ends {
    input: Option<OwnedFd>,
    output: OwnedFd,
    /// `None`: the output is a terminal and serves as all three.
    error: Option<OwnedFd>,
}

/// Our ends.
#[derive(Debug)]
struct Pipes {
    channels: [Channel; 2],
    input: Feed,
}

/// What was started.
#[derive(Debug)]
struct Launched {
    /// `None`: its supervisor will say.
    pid: Option<rustix::process::Pid>,
    tree: Tree,
    said: Said,
}

/// Why the child could not become the program, if it could not.
#[derive(Debug)]
enum Said {
    /// Comes by this pipe.
    Later(OwnedFd),
    /// It was waited for.
    Already(Option<Failed>),
}

impl Agent {
    pub(crate) fn start(&mut self, connection: u32, stream: u64, start: &Start) -> Result {
        self.setup()?;
        if start.process.is_empty() || start.process.len() > LONGEST_NAME {
            return Err(invalid("the process id is empty or too long"));
        }
        if self.find(&start.process).is_some() {
            return Err(Problem::new("process-exists", "a process of that id is known already"));
        }
        if self.processes.len() >= MOST_PROCESSES && !self.drop_oldest() {
            return Err(Problem::new("too-many-processes", "some must end first"));
        }
        let plan = Plan::new(self.setup()?, start)?;
        let key = self.new_id();
        let (pipes, ends) =
            self.open_pipes(key, start).map_err(|error| exhausted("pipe", &error))?;
        if let (false, Some(memory)) = (self.has_trees(), &mut self.memory) {
            memory.wait(self.now);
        }
        let working_directory = plan.planned.working_directory.as_bytes().to_vec();
        let launched = self.launch(key, plan.planned, &ends)?;
        let (status, failed) = match launched.said {
            Said::Later(status) => (Some(self.poller.own(status, Token::Status(key))), None),
            Said::Already(failed) => (None, failed),
        };
        let mut process = Process {
            name: start.process.clone(),
            program: plan.name,
            working_directory,
            pid: launched.pid,
            status,
            not_started: None,
            channels: pipes.channels,
            input: pipes.input,
            input_told: 0,
            is_terminal: start.terminal.is_some(),
            listener: Some(Listener::new(connection, stream, [0, 0])),
            tree: Some(launched.tree),
            young_until: Some(self.now + YOUTH),
            patient: start.patient,
            timeout: (start.timeout_ms > 0)
                .then(|| self.now.checked_add(Duration::from_millis(start.timeout_ms)))
                .flatten()
                .map(|at| (at, start.grace_ms)),
            kill_at: None,
            give_up_at: None,
            timed_out: false,
            cancelled: false,
            memory_exceeded: false,
            pids_exhausted: false,
            ended: None,
            forgotten: false,
        };
        process.not_started = failed.map(|failed| process.explain(failed));
        if !process.is_terminal {
            let [output, error] = &mut process.channels;
            (output.writer, error.writer) = (Some(ends.output), ends.error);
        }
        match &mut process.status {
            Some(status) => {
                if let Err(errno) = status.set_interest(EventFlags::IN) {
                    process.kill_tree(self.now);
                    return Err(exhausted("epoll", &errno.into()));
                }
            }
            None => self.dirty.push(key),
        }
        self.processes.insert(key, process);
        if let Some(connection) = self.connections.get_mut(connection) {
            connection.streams.insert(stream, Use::Process(key));
        }
        Ok(())
    }

    /// Forgets the oldest process that has ended and that nobody waits for; whether there was one.
    fn drop_oldest(&mut self) -> bool {
        let over = |process: &Process| {
            process.is_closed() && process.tree.is_none() && process.has_told_close()
        };
        let oldest = self.processes.iter().find(|(_, process)| over(process));
        match oldest.map(|(key, _)| key) {
            Some(key) => self.processes.remove(key).is_some(),
            None => false,
        }
    }

    /// The status pipe has something to say, or its end.
    pub(crate) fn on_status(&mut self, key: u32) {
        let Some(process) = self.processes.get_mut(key) else { return };
        process.read_status();
        self.dirty.push(key);
    }

    /// Takes one report of a supervisor; whether there was one.
    pub(crate) fn on_supervisor(&mut self, key: u32) -> bool {
        let Some(process) = self.processes.get_mut(key) else { return false };
        let Some(Tree::Supervised(supervisor)) = &mut process.tree else { return false };
        let Some(report) = supervisor.next_report() else {
            // It is gone; what follows comes when it is waited for.
            let _ = supervisor.socket.set_interest(EventFlags::empty());
            return false;
        };
        match report {
            Report::Spawned(pid) => process.pid = rustix::process::Pid::from_raw(pid),
            Report::NotSpawned { errno } => {
                process.status = None;
                process.not_started = Some(clone_failed(&io::Error::from_raw_os_error(errno)));
            }
            Report::Ended(ended, usage) => self.main_ended(key, ended, usage),
        }
        self.dirty.push(key);
        true
    }

    /// Whether nothing can hold up a child on its way, so that it need not have a copy of our memory and we can wait: no
    /// process is there that could stop it, and no file system that may not answer. Nor may memory run out before it is a
    /// program: the kernel then kills whom the memory belongs to, which would be us.
    fn is_undisturbed(&mut self) -> bool {
        // Looking takes longer than a first command would gain, and often there is no second.
        let first = !std::mem::replace(&mut self.has_started, true);
        if first || self.cgroups.is_none() || self.has_trees() || !is_init() || remains::are_there()
        {
            return false;
        }
        *self.files_answer.get_or_insert_with(|| mounts::all_answer(&mut self.scratch))
    }

    fn launch(&mut self, key: u32, planned: Planned, ends: &Ends) -> Result<Launched> {
        let undisturbed = self.is_undisturbed();
        let setup = self.setup.as_ref().expect("checked by the caller");
        let mut streams = Streams::Terminal(ends.output.as_fd());
        if let Some(error) = &ends.error {
            let input = ends.input.as_ref().unwrap_or(&setup.null).as_fd();
            let (output, error) = (ends.output.as_fd(), error.as_fd());
            streams = Streams::Descriptors { input, output, error };
        }
        if setup.tree_kill == TreeKill::Direct && self.direct().is_none() && is_init() {
            let spawned = planned.spawn_beside(setup.confinement.clone(), streams);
            let (pid, status, beside) = spawned.map_err(|error| clone_failed(&error))?;
            self.children.insert(pid.as_raw_nonzero().get(), Child::Main(key));
            let tree = Tree::Direct(Direct::new(beside));
            return Ok(Launched { pid: Some(pid), tree, said: Said::Later(status) });
        }
        let kept = if undisturbed { self.status_pipe.take() } else { None };
        let (status, status_end) = match kept {
            Some(pipe) => pipe,
            None => pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)
                .map_err(|errno| exhausted("pipe", &errno.into()))?,
        };
        let mut launch = Launch {
            planned: &planned,
            streams,
            confinement: &setup.confinement,
            cgroup: None,
            status: status_end.as_fd(),
        };
        match (&mut self.cgroups, setup.tree_kill) {
            (Some(cgroups), TreeKill::Cgroup) => {
                let cgroup = cgroups
                    .take()
                    .map_err(|error| Problem::system("start-failed", "cgroup", &error))?;
                launch.cgroup = Some(cgroup.directory());
                let spawned = self.oom_score.raised(|| match undisturbed {
                    true => launch.spawn_and_wait(),
                    false => launch.spawn(),
                });
                match spawned {
                    Ok(pid) => {
                        self.children.insert(pid.as_raw_nonzero().get(), Child::Main(key));
                        let said = if undisturbed {
                            // It can say nothing any more, so what comes next is the next one's.
                            let failed = read_failed(&status).ok().flatten();
                            self.status_pipe = Some((status, status_end));
                            Said::Already(failed)
                        } else {
                            Said::Later(status)
                        };
                        Ok(Launched { pid: Some(pid), tree: Tree::Cgroup(cgroup), said })
                    }
                    Err(error) => {
                        cgroups.give_back(cgroup);
                        Err(clone_failed(&error))
                    }
                }
            }
            _ => {
                let pair = socketpair(
                    AddressFamily::UNIX,
                    SocketType::SEQPACKET,
                    SocketFlags::CLOEXEC,
                    None,
                );
                let (ours, theirs) =
                    pair.map_err(|errno| exhausted("socketpair", &errno.into()))?;
                let mut kept = vec![
                    ends.output.as_fd(),
                    status_end.as_fd(),
                    theirs.as_fd(),
                    setup.null.as_fd(),
                ];
                kept.extend(ends.input.as_ref().map(AsFd::as_fd));
                kept.extend(ends.error.as_ref().map(AsFd::as_fd));
                kept.extend(setup.confinement.landlock.as_ref().map(AsFd::as_fd));
                let kept: Vec<_> = kept.iter().map(BorrowedFd::as_raw_fd).collect();
                let forked = self.oom_score.raised(|| {
                    fork::fork(&kept, |forked| supervisor::supervise(forked, &theirs, &launch))
                });
                let pid = forked.map_err(|error| clone_failed(&error))?;
                let mut socket = self.poller.own(ours, Token::Supervisor(key));
                socket
                    .set_interest(EventFlags::IN)
                    .map_err(|errno| exhausted("epoll", &errno.into()))?;
                self.children.insert(pid.as_raw_nonzero().get(), Child::Supervisor(key));
                let tree = Tree::Supervised(Supervisor::new(pid, socket));
                Ok(Launched { pid: None, tree, said: Said::Later(status) })
            }
        }
    }

    fn open_pipes(&mut self, key: u32, start: &Start) -> io::Result<(Pipes, Ends)> {
        if let Some(size) = &start.terminal {
            let (master, terminal) = self.open_terminal(start, size)?;
            let writer = rustix::io::fcntl_dupfd_cloexec(&master, 3)?;
            let pipes = Pipes {
                channels: [
                    Channel::new(self.poller.own(master, Token::Output(key))),
                    Channel::default(),
                ],
                input: Feed::terminal(self.poller.own(writer, Token::Input(key))),
            };
            return Ok((pipes, Ends { input: None, output: terminal, error: None }));
        }
        let user = self.user_of(start);
        let count = if start.stdin { 3 } else { 2 };
        let mut pipes = open_pipe_ends(user, count, &mut self.pipes_are_owned)?.into_iter();
        let mut next = || pipes.next().expect("as many as were asked for");
        let ((output, output_end), (error, error_end)) = (next(), next());
        rustix::io::ioctl_fionbio(&output, true)?;
        rustix::io::ioctl_fionbio(&error, true)?;
        let (input, input_end) = if start.stdin {
            let (input_end, input) = next();
            rustix::io::ioctl_fionbio(&input, true)?;
            (Feed::pipe(self.poller.own(input, Token::Input(key))), Some(input_end))
        } else {
            (Feed::closed(), None)
        };
        let pipes = Pipes {
            channels: [
                Channel::new(self.poller.own(output, Token::Output(key))),
                Channel::new(self.poller.own(error, Token::Error(key))),
            ],
            input,
        };
        Ok((pipes, Ends { input: input_end, output: output_end, error: Some(error_end) }))
    }

    fn open_terminal(&self, start: &Start, size: &Terminal) -> io::Result<(OwnedFd, OwnedFd)> {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags)?;
        rustix::pty::unlockpt(&master)?;
        // By descriptor: a path could lead to someone else's terminal.
        let terminal = match rustix::pty::ioctl_tiocgptpeer(&master, flags) {
            Ok(terminal) => terminal,
            // gVisor's kernel has no such call, and its `/dev/pts` is its own.
            Err(rustix::io::Errno::NOTTY | rustix::io::Errno::NOSYS) => {
                let path = rustix::pty::ptsname(&master, Vec::new())?;
                let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
                rustix::fs::open(path, flags, Mode::empty())?
            }
            Err(errno) => return Err(errno.into()),
        };
        rustix::termios::tcsetwinsize(&master, window_size(size.rows, size.columns))?;
        rustix::io::ioctl_fionbio(&master, true)?;
        // So that the program can open it by name. Without the privilege to give it away it is left open to everyone
        // in the sandbox, who could reach it through the process anyway.
        let uid = Some(Uid::from_raw(self.user_of(start)));
        if rustix::fs::fchown(&terminal, uid, None).is_err() {
            // Where a kernel (gVisor's) can do neither, the program has it open and that is all it needs of it.
            let _ = rustix::fs::fchmod(&terminal, Mode::from_raw_mode(0o666));
        }
        Ok((master, terminal))
    }

    fn user_of(&self, start: &Start) -> u32 {
        let user = start.user.as_ref().or(self.setup.as_ref().map(|setup| &setup.user));
        user.map_or(0, |user| user.uid)
    }
}

impl Process {
    /// Takes what the child wrote before it became the program, if it has written or closed the pipe.
    pub(super) fn read_status(&mut self) {
        let Some(status) = &self.status else { return };
        match read_failed(status) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
            Ok(Some(failed)) => self.not_started = Some(self.explain(failed)),
            _ => {}
        }
        self.status = None;
        if let Some(Tree::Direct(direct)) = &mut self.tree {
            direct.forget_plan();
        }
    }

    fn explain(&self, failed: Failed) -> Problem {
        let Failed { stage, errno } = failed;
        let code = match (stage, rustix::io::Errno::from_raw_os_error(errno)) {
            (Stage::Exec, rustix::io::Errno::NOENT) => "program-not-found",
            (Stage::Exec, rustix::io::Errno::TOOBIG) => "arguments-too-large",
            // What a limit on processes gives after the user has changed.
            (Stage::Exec, rustix::io::Errno::AGAIN) => "pids-exhausted",
            (Stage::Exec, _) => "program-not-executable",
            (Stage::WorkingDirectory, _) => "working-directory-invalid",
            (Stage::User | Stage::Group | Stage::Groups, _) => "user-invalid",
            _ => "start-failed",
        };
        let path = match stage {
            Stage::WorkingDirectory => self.working_directory.as_slice(),
            _ => self.program.as_slice(),
        };
        Problem::new(code, "").at(stage.as_str()).because(errno).about(path)
    }
}

impl Channel {
    fn new(source: crate::poller::Watched) -> Self {
        Self { source: Some(source), ..Self::default() }
    }
}

impl Listener {
    pub(super) fn new(connection: u32, stream: u64, sent: [u64; 2]) -> Self {
        Self { connection, stream, sent, told_start: false, told_end: false, told_close: false }
    }
}

/// What a child has written to its status pipe.
fn read_failed(status: impl AsFd) -> rustix::io::Result<Option<Failed>> {
    let mut bytes = [0; STATUS_SIZE];
    let count = rustix::io::read(status, &mut bytes)?;
    Ok(Failed::from_bytes(&bytes[..count]))
}

/// Pipes that programs may open again by way of `/dev/stdout`, whoever they run as.
fn open_pipe_ends(user: u32, count: usize, owned: &mut bool) -> io::Result<Vec<Pipe>> {
    if !*owned {
        let pipes = open_plain(count)?;
        let mode = Mode::from_raw_mode(0o666);
        match pipes.iter().try_for_each(|(_, writer)| rustix::fs::fchmod(writer, mode)) {
            Ok(()) => return Ok(pipes),
            // gVisor's kernel has pipes that belong to whoever made them, for good; so the user makes them.
            Err(rustix::io::Errno::PERM) => *owned = true,
            Err(errno) => return Err(errno.into()),
        }
    }
    let own = rustix::process::geteuid();
    let be = |user: Uid| rustix::thread::set_thread_res_uid(own, user, own);
    be(Uid::from_raw(user))?;
    let made = open_plain(count);
    be(own)?;
    // Changing from root and back takes and gives nothing but this set.
    let mut sets = rustix::thread::capabilities(None)?;
    sets.effective = sets.permitted;
    rustix::thread::set_capabilities(None, sets)?;
    made
}

fn open_plain(count: usize) -> io::Result<Vec<Pipe>> {
    (0..count).map(|_| Ok(pipe_with(PipeFlags::CLOEXEC)?)).collect()
}

pub(super) fn window_size(rows: u32, columns: u32) -> Winsize {
    let clamp = |size: u32, default: u16| match u16::try_from(size) {
        Ok(0) => default,
        Ok(size) => size,
        Err(_) => u16::MAX,
    };
    Winsize { ws_row: clamp(rows, 24), ws_col: clamp(columns, 80), ws_xpixel: 0, ws_ypixel: 0 }
}

fn clone_failed(error: &io::Error) -> Problem {
    match error.kind() {
        io::ErrorKind::WouldBlock => Problem::system("pids-exhausted", "clone", error),
        _ => Problem::system("start-failed", "clone", error),
    }
}

fn exhausted(stage: &'static str, error: &io::Error) -> Problem {
    Problem::system("start-failed", stage, error)
}
