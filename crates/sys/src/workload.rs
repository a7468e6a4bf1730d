//! Starting a program with less than its parent has, on the shortest way from `clone` to `exec`.
//!
//! A [`Launch`] holds everything that the child will need; [`spawn`] clones and the child runs one fixed sequence of
//! system calls (`workload/child.rs`). The first failure goes to the status pipe as `{stage, errno}`; a successful
//! `exec` closes the pipe without a word.
//!
//! [`Launch::spawn`] allocates nothing after the clone. The identity and the walls are also usable without an `exec`
//! ([`Confinement::apply`]), for a forked helper that must not be able to do more than the program could. Where copies of
//! memory are dear, the child uses the caller's ([`Planned::spawn_beside`]).

mod beside;
mod child;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::ptr;

use rustix::process::Pid;

use crate::{guest, uapi};

pub use beside::Beside;

/// What is run: the arguments, the environment, and the paths to try in turn.
#[derive(Debug)]
pub struct Program {
    arguments: Pointers,
    environment: Pointers,
    candidates: Vec<CString>,
}

/// Who the child becomes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Credentials {
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// The walls around the child, in the order in which they go up.
#[derive(Debug, Default)]
pub struct Confinement {
    pub limits: Vec<Limit>,
    /// A Landlock ruleset.
    pub landlock: Option<OwnedFd>,
    /// Classic BPF programs, installed in this order.
    pub filters: Vec<Filter>,
    /// What the caller's bounding set still has; what is not kept of it is dropped, where the caller may do that.
    pub bounding: u64,
}

/// A resource limit, with the kernel's number of the resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub resource: u32,
    pub soft: u64,
    pub hard: u64,
}

/// A seccomp filter.
#[derive(Clone, Debug)]
pub struct Filter(Vec<libc::sock_filter>);

/// Where the child's standard streams lead.
#[derive(Clone, Copy, Debug)]
pub enum Streams<'a> {
    Descriptors {
        input: BorrowedFd<'a>,
        output: BorrowedFd<'a>,
        error: BorrowedFd<'a>,
    },
    /// The terminal side of a pseudo-terminal: all three, and the controlling terminal.
    Terminal(BorrowedFd<'a>),
}

/// What a child becomes, and where.
#[derive(Debug)]
pub struct Planned {
    pub program: Program,
    pub working_directory: CString,
    /// `None`: the caller's own user and groups stay.
    pub credentials: Option<Credentials>,
    /// Kept in the permitted, effective and inheritable sets, as far as the caller has them; what it has must be in its bounding set, too.
    pub capabilities: u64,
}

/// A planned child.
#[derive(Clone, Copy, Debug)]
pub struct Launch<'a> {
    pub planned: &'a Planned,
    pub streams: Streams<'a>,
    pub confinement: &'a Confinement,
    /// A cgroup v2 directory to start in.
    pub cgroup: Option<BorrowedFd<'a>>,
    /// The writing end of a close-on-exec pipe.
    pub status: BorrowedFd<'a>,
}

/// What the child was doing when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Stage {
    Session = 1,
    Streams,
    Terminal,
    Limits,
    Groups,
    Group,
    User,
    Capabilities,
    WorkingDirectory,
    NoNewPrivileges,
    Landlock,
    Descriptors,
    Signals,
    Seccomp,
    Exec,
}

/// Why the program did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    pub stage: Stage,
    pub errno: i32,
}

/// Bytes of one [`Failed`] on the status pipe; below PIPE_BUF, so they arrive together.
pub const STATUS_SIZE: usize = 5;

/// The descriptors that a child starts with, by their numbers in its own table.
#[derive(Clone, Copy, Debug)]
struct Ends {
    streams: [RawFd; 3],
    is_terminal: bool,
    status: RawFd,
}

/// Strings laid out as `exec` wants them: the pointers lead into `owned`, which is not touched again.
#[derive(Debug)]
struct Pointers {
    #[allow(dead_code)] // Keeps the strings alive.
    owned: Vec<CString>,
    raw: Vec<*const libc::c_char>,
}

// === impl Program ===

impl Program {
    /// `candidates` are tried in turn as `execvp` does: one that is not there is skipped, one that may not be run is
    /// remembered.
    #[must_use]
    pub fn new(
        arguments: Vec<CString>,
        environment: Vec<CString>,
        candidates: Vec<CString>,
    ) -> Self {
        Self {
            arguments: Pointers::new(arguments),
            environment: Pointers::new(environment),
            candidates,
        }
    }
}

impl Pointers {
    fn new(owned: Vec<CString>) -> Self {
        let raw = owned.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect();
        Self { owned, raw }
    }
}

// === impl Limit ===

impl Limit {
    /// The limit that this process has now.
    pub fn current(resource: u32) -> io::Result<Self> {
        let mut limit = libc::rlimit64 { rlim_cur: 0, rlim_max: 0 };
        let none = ptr::null::<libc::rlimit64>();
        // SAFETY: reads into a live structure of the layout that the call writes; no new limit is given.
        let result = unsafe {
            libc::syscall(libc::SYS_prlimit64, 0, resource, none, ptr::from_mut(&mut limit))
        };
        match result {
            0 => Ok(Self { resource, soft: limit.rlim_cur, hard: limit.rlim_max }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Sets the limit for this process.
    pub fn apply(self) -> io::Result<()> {
        child::limit_one(self).map_err(|failed| io::Error::from_raw_os_error(failed.errno))
    }

    /// The same or a lower limit that this process can set without privilege.
    pub fn within_own(self) -> io::Result<Self> {
        let hard = self.hard.min(Self::current(self.resource)?.hard);
        Ok(Self { resource: self.resource, soft: self.soft.min(hard), hard })
    }
}

// === impl Filter ===

impl Filter {
    /// From an array of 8-byte `struct sock_filter`; `None` if that is not what the bytes are.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (instructions, rest) = bytes.as_chunks::<8>();
        let valid = rest.is_empty() && (1..=MAX_INSTRUCTIONS).contains(&instructions.len());
        valid.then(|| {
            Self(
                instructions
                    .iter()
                    .map(|&[c0, c1, jt, jf, k0, k1, k2, k3]| libc::sock_filter {
                        code: u16::from_ne_bytes([c0, c1]),
                        jt,
                        jf,
                        k: u32::from_ne_bytes([k0, k1, k2, k3]),
                    })
                    .collect(),
            )
        })
    }

    /// Puts the calling process, and everything that it starts, behind this filter, for good.
    pub fn install(&self) -> io::Result<()> {
        child::install(self).map_err(|failed| io::Error::from_raw_os_error(failed.errno))
    }
}

/// `BPF_MAXINSNS`.
const MAX_INSTRUCTIONS: usize = 4096;

// === impl Confinement ===

impl Confinement {
    /// Puts the calling process behind these walls, for good. Everything but the working directory and `exec`.
    pub fn apply(
        &self,
        credentials: Option<&Credentials>,
        capabilities: u64,
    ) -> Result<(), Failed> {
        child::limit(self)?;
        child::become_user(self, credentials, capabilities)?;
        child::wall_in(self)?;
        child::filter(self)
    }
}

// === impl Launch ===

impl Launch<'_> {
    /// Clones the calling process; the child becomes the program or reports why it could not.
    ///
    /// The parent must wait for the child, whose number therefore stays its own until then.
    pub fn spawn(&self) -> io::Result<Pid> {
        let mut arguments = self.clone_arguments(0);
        // SAFETY: the structure is initialised, lives through the call and has the size that is passed. Without
        // CLONE_VM the child gets a copy of this address space; it runs only `child::run`, which makes system calls
        // on what this plan borrows and never returns.
        let pid = unsafe {
            libc::syscall(
                libc::SYS_clone3,
                ptr::from_mut(&mut arguments),
                size_of::<uapi::CloneArgs>(),
            )
        };
        match pid {
            0 => run(self),
            1.. => Ok(Pid::from_raw(pid as i32).expect("positive")),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The same without a copy of the caller's memory: the child uses it, and the caller waits, until the program runs
    /// or has failed to. For callers that handle no signals and may be held up, or know that nothing can hold up the child. A
    /// copy costs a tenth of a command, and in gVisor's kernel as much as all the rest.
    pub fn spawn_and_wait(&self) -> io::Result<Pid> {
        let arguments = self.clone_arguments(libc::CLONE_VFORK as u64);
        let dumpable = rustix::process::dumpable_behavior()?;
        // What this plan borrows outlives the guest, because the kernel lets go of the caller only when the guest has left.
        let (pid, _left) = guest::spawn(arguments, *self, run)?;
        guest::see_off(dumpable);
        Ok(Pid::from_raw(pid).expect("positive"))
    }

    fn clone_arguments(&self, flags: u64) -> uapi::CloneArgs {
        let mut arguments = uapi::CloneArgs {
            flags,
            exit_signal: libc::SIGCHLD as u64,
            ..uapi::CloneArgs::default()
        };
        if let Some(cgroup) = self.cgroup {
            arguments.flags |= uapi::CLONE_INTO_CGROUP;
            arguments.cgroup = cgroup.as_raw_fd() as u64;
        }
        arguments
    }
}

fn run(launch: &Launch<'_>) -> ! {
    child::run(launch.planned, launch.confinement, Ends::new(launch.streams, launch.status))
}

// === impl Ends ===

impl Ends {
    fn new(streams: Streams<'_>, status: BorrowedFd<'_>) -> Self {
        let is_terminal = matches!(streams, Streams::Terminal(_));
        Self { streams: streams.raw(), is_terminal, status: status.as_raw_fd() }
    }
}

// === impl Failed ===

impl Failed {
    fn to_bytes(self) -> [u8; STATUS_SIZE] {
        let [a, b, c, d] = self.errno.to_le_bytes();
        [self.stage as u8, a, b, c, d]
    }

    /// Reads what the status pipe gave. `None`: nothing, so the program runs (or was killed before it could say why).
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let &[stage, a, b, c, d] = bytes.first_chunk::<STATUS_SIZE>()?;
        let stage = Stage::ALL.into_iter().find(|known| *known as u8 == stage)?;
        Some(Self { stage, errno: i32::from_le_bytes([a, b, c, d]) })
    }
}

// === impl Stage ===

impl Stage {
    const ALL: [Self; 15] = [
        Self::Session,
        Self::Streams,
        Self::Terminal,
        Self::Limits,
        Self::Groups,
        Self::Group,
        Self::User,
        Self::Capabilities,
        Self::WorkingDirectory,
        Self::NoNewPrivileges,
        Self::Landlock,
        Self::Descriptors,
        Self::Signals,
        Self::Seccomp,
        Self::Exec,
    ];

    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Streams => "streams",
            Self::Terminal => "terminal",
            Self::Limits => "limits",
            Self::Groups => "groups",
            Self::Group => "group",
            Self::User => "user",
            Self::Capabilities => "capabilities",
            Self::WorkingDirectory => "chdir",
            Self::NoNewPrivileges => "no-new-privileges",
            Self::Landlock => "landlock",
            Self::Descriptors => "descriptors",
            Self::Signals => "signals",
            Self::Seccomp => "seccomp",
            Self::Exec => "exec",
        }
    }
}

impl Streams<'_> {
    fn raw(&self) -> [RawFd; 3] {
        match self {
            Self::Descriptors { input, output, error } => {
                [input.as_raw_fd(), output.as_raw_fd(), error.as_raw_fd()]
            }
            Self::Terminal(terminal) => [terminal.as_raw_fd(); 3],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::os::fd::AsFd;
    use std::rc::Rc;

    #[test]
    fn a_failure_survives_the_pipe() {
        for stage in Stage::ALL {
            let failed = Failed { stage, errno: -7 };
            assert_eq!(Failed::from_bytes(&failed.to_bytes()), Some(failed));
        }
        for bytes in [&[][..], &[15, 0, 0, 0], &[0; 5], &[16, 0, 0, 0, 0]] {
            assert_eq!(Failed::from_bytes(bytes), None);
        }
    }

    #[test]
    fn a_filter_is_whole_instructions() {
        for (bytes, valid) in [(0, false), (7, false), (8, true), (12, false), (8 * 4097, false)] {
            assert_eq!(Filter::from_bytes(&vec![0; bytes]).is_some(), valid, "{bytes}");
        }
    }

    /// Starts a program with its output in a pipe, in each of the ways; what it wrote, or why it did not start.
    fn run(arguments: &[&str], candidates: &[&str], directory: &str) -> Result<String, Failed> {
        let run_by = |spawn: Spawn| run_by(spawn, arguments, candidates, directory);
        let copied = run_by(|planned, streams| spawn(planned, streams, |launch| launch.spawn()));
        let guest =
            run_by(|planned, streams| spawn(planned, streams, |launch| launch.spawn_and_wait()));
        let beside = run_by(|planned, streams| {
            let (pid, status, beside) = planned.spawn_beside(Rc::default(), streams).unwrap();
            // So that whoever reads waits for the end.
            rustix::io::ioctl_fionbio(&status, false).unwrap();
            (pid, status, Some(beside))
        });
        assert_eq!((&copied, &copied), (&guest, &beside));
        copied
    }

    type Spawn = fn(Planned, Streams<'_>) -> (Pid, OwnedFd, Option<Beside>);

    fn spawn(
        planned: Planned,
        streams: Streams<'_>,
        way: fn(&Launch<'_>) -> io::Result<Pid>,
    ) -> (Pid, OwnedFd, Option<Beside>) {
        let (status, status_end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let launch = Launch {
            planned: &planned,
            streams,
            confinement: &Confinement::default(),
            cgroup: None,
            status: status_end.as_fd(),
        };
        (way(&launch).unwrap(), status, None)
    }

    fn run_by(
        spawn: Spawn,
        arguments: &[&str],
        candidates: &[&str],
        directory: &str,
    ) -> Result<String, Failed> {
        let strings = |all: &[&str]| all.iter().map(|text| CString::new(*text).unwrap()).collect();
        let planned = Planned {
            program: Program::new(strings(arguments), Vec::new(), strings(candidates)),
            working_directory: CString::new(directory).unwrap(),
            credentials: None,
            capabilities: 0,
        };
        let (output, output_end) = pipe_with(PipeFlags::CLOEXEC).unwrap();
        let null = std::fs::File::open("/dev/null").unwrap();
        let streams = Streams::Descriptors {
            input: null.as_fd(),
            output: output_end.as_fd(),
            error: output_end.as_fd(),
        };
        let (pid, status, beside) = spawn(planned, streams);
        drop(output_end);
        let mut said = Vec::new();
        io::Read::read_to_end(&mut std::fs::File::from(status), &mut said).unwrap();
        assert!(beside.is_none_or(|beside| beside.has_left()));
        let text = io::read_to_string(std::fs::File::from(output)).unwrap();
        rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap();
        match Failed::from_bytes(&said) {
            Some(failed) => Err(failed),
            None => Ok(text),
        }
    }

    #[test]
    fn starts_the_first_candidate_that_can_be_run() {
        let tries = ["/nonexistent/sh", "/etc/passwd", "/bin/sh"];
        let text = run(&["sh", "-c", "echo $0; pwd"], &tries, "/usr").unwrap();
        assert_eq!(text, "sh\n/usr\n");
    }

    #[test]
    fn says_why_a_program_did_not_start() {
        let failed = |stage, errno| Err(Failed { stage, errno });
        for (candidates, directory, expected) in [
            (&["/nonexistent"][..], "/", failed(Stage::Exec, libc::ENOENT)),
            (&["/etc/passwd", "/nonexistent"], "/", failed(Stage::Exec, libc::EACCES)),
            (&["/etc/passwd/x"], "/", failed(Stage::Exec, libc::ENOENT)),
            (&["/bin/true"], "/nonexistent", failed(Stage::WorkingDirectory, libc::ENOENT)),
            (&["/bin/true"], "/etc/passwd", failed(Stage::WorkingDirectory, libc::ENOTDIR)),
            (&["/bin/true"], "/proc/self/cwd", failed(Stage::WorkingDirectory, libc::ELOOP)),
            (&["/bin/true"], "/", Ok(String::new())),
        ] {
            assert_eq!(run(&["x"], candidates, directory), expected, "{candidates:?} {directory}");
        }
    }

    #[test]
    fn drops_every_capability() {
        let text = run(
            &["grep", "-E", "^(CapEff|CapPrm|CapInh|CapAmb|NoNewPrivs)", "/proc/self/status"],
            &["/bin/grep"],
            "/",
        )
        .unwrap();
        let values: Vec<&str> =
            text.lines().filter_map(|line| line.split_whitespace().nth(1)).collect();
        let none = "0000000000000000";
        assert_eq!(values, [none, none, none, none, "1"]);
    }
}
