//! A supervisor per process, where no cgroup can be had: it adopts every orphan below it and lives as long as any
//! descendant does.
//!
//! It is a copy of the agent that starts the program as its own child, reports how that ended, and on order kills
//! everything below itself until nothing is left. It may share its user with the workload, which may then kill or stop
//! it: a killed supervisor's orphans come to the agent, who kills every child that is no supervisor of its own, and a
//! stopped one is killed after [`PATIENCE`]. So neither lets anything live on.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

use belljar_sys::fork::{self, Ended, Forked, Usage};
use belljar_sys::signals::{self, SignalDescriptor};
use belljar_sys::workload::Launch;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};
use rustix::process::{Pid, Signal};

use super::Scope;
use crate::poller::Watched;
use crate::procfs;

/// The agent's side.
#[derive(Debug)]
pub(crate) struct Supervisor {
    pub(crate) pid: Pid,
    pub(crate) socket: Watched,
    /// When it was first told to kill its tree.
    killing_since: Option<Instant>,
}

/// How long a supervisor may take to kill its tree before it is killed itself.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a supervisor is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Kill,
    Signal { scope: Scope, number: i32 },
}

/// What a supervisor tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Report {
    Spawned(i32),
    NotSpawned { errno: i32 },
    Ended(Ended, Usage),
}

// === impl Supervisor ===

impl Supervisor {
    pub(crate) fn new(pid: Pid, socket: Watched) -> Self {
        Self { pid, socket, killing_since: None }
    }

    pub(crate) fn order(&self, order: Order) -> io::Result<()> {
        send(&self.socket, &order.to_bytes(), SendFlags::NOSIGNAL)?;
        Ok(())
    }

    pub(crate) fn kill(&mut self, now: Instant) {
        if self.killing_since.is_none() {
            self.killing_since = Some(now);
            // If the order cannot be given, patience will run out.
            let _ = self.order(Order::Kill);
            let _ = signals::send(self.pid, Signal::CONT.as_raw());
        }
    }

    /// When it has had its time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.killing_since.map(|since| since + PATIENCE)
    }

    /// Kills the supervisor itself; its orphans come to the agent.
    pub(crate) fn lose_patience(&mut self) {
        self.killing_since = None;
        let _ = signals::send(self.pid, Signal::KILL.as_raw());
    }

    pub(crate) fn next_report(&self) -> Option<Report> {
        let mut bytes = [0; Report::SIZE];
        let (size, _) = recv(&self.socket, &mut bytes[..], RecvFlags::DONTWAIT).ok()?;
        (size == bytes.len()).then(|| Report::from_bytes(&bytes)).flatten()
    }
}

/// The supervisor's own life, in a process of its own.
///
/// What only the program needs is closed as soon as it has it.
pub(crate) fn supervise(forked: &Forked, socket: &OwnedFd, launch: &Launch<'_>) {
    let tell = |report: Report| {
        let _ = send(socket, &report.to_bytes(), SendFlags::NOSIGNAL);
    };
    let adopted = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    let signals = SignalDescriptor::block_all(&[Signal::CHILD]);
    let spawned = adopted.map_err(io::Error::from).and(signals).and_then(|signals| {
        // Whoever stops the child on its way holds up this supervisor, no more: see above.
        let main = launch.spawn_and_wait()?;
        forked.keep_only(&[socket.as_raw_fd(), signals.as_fd().as_raw_fd()])?;
        Ok((main, signals))
    });
    let (main, signals) = match spawned {
        Ok(spawned) => spawned,
        Err(error) => {
            return tell(Report::NotSpawned { errno: error.raw_os_error().unwrap_or(0) });
        }
    };
    tell(Report::Spawned(main.as_raw_nonzero().get()));
    let mut killing = false;
    let mut main_runs = true;
    loop {
        while signals.next().is_some() {}
        while let Some((pid, ended, usage)) = fork::reap() {
            if pid == main {
                main_runs = false;
                tell(Report::Ended(ended, usage));
            }
        }
        if !fork::has_children() {
            return;
        }
        if killing {
            kill_descendants();
        }
        wait(socket, &signals, killing);
        let mut bytes = [0; Order::SIZE];
        match recv(socket, &mut bytes[..], RecvFlags::DONTWAIT) {
            // The agent is gone, and with it everyone who could ask for the tree's end.
            Ok((0, _)) => killing = true,
            Ok(_) => match Order::from_bytes(bytes) {
                Some(Order::Kill) => killing = true,
                Some(Order::Signal { scope, number }) if main_runs => {
                    let _ = match scope {
                        Scope::Leader => signals::send(main, number),
                        Scope::Group => signals::send_to_group(main, number),
                    };
                }
                _ => {}
            },
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(_) => killing = true,
        }
    }
}

/// Waits for an order or for the end of a child; while killing, not for long: children of the killed become ours
/// without a signal.
fn wait(socket: &OwnedFd, signals: &SignalDescriptor, killing: bool) {
    let pause = Timespec { tv_sec: 0, tv_nsec: 2_000_000 };
    let mut descriptors = vec![PollFd::from_borrowed_fd(signals.as_fd(), PollFlags::IN)];
    if !killing {
        descriptors.push(PollFd::new(socket, PollFlags::IN));
    }
    let _ = poll(&mut descriptors, killing.then_some(&pause));
}

/// One pass over the tree. A process with a pending KILL does not fork any more, so passes converge.
///
/// A number could in theory be given to another process between the look and the signal. That takes as many new
/// processes as there are numbers within microseconds, and could only hit processes of the same sandbox.
fn kill_descendants() {
    for entry in procfs::descendants() {
        if let Some(pid) = Pid::from_raw(entry.pid) {
            let _ = signals::send(pid, Signal::KILL.as_raw());
        }
    }
}

// === impl Order ===

impl Order {
    const SIZE: usize = 5;

    fn to_bytes(self) -> [u8; Self::SIZE] {
        let (kind, number) = match self {
            Self::Kill => (0, 0),
            Self::Signal { scope: Scope::Leader, number } => (1, number),
            Self::Signal { scope: Scope::Group, number } => (2, number),
        };
        let [a, b, c, d] = number.to_le_bytes();
        [kind, a, b, c, d]
    }

    fn from_bytes([kind, a, b, c, d]: [u8; Self::SIZE]) -> Option<Self> {
        let number = i32::from_le_bytes([a, b, c, d]);
        match kind {
            0 => Some(Self::Kill),
            1 => Some(Self::Signal { scope: Scope::Leader, number }),
            2 => Some(Self::Signal { scope: Scope::Group, number }),
            _ => None,
        }
    }
}

// === impl Report ===

impl Report {
    const SIZE: usize = 45;

    fn to_bytes(self) -> [u8; Self::SIZE] {
        let (kind, number, usage) = match self {
            Self::Spawned(pid) => (0, pid, Usage::default()),
            Self::NotSpawned { errno } => (1, errno, Usage::default()),
            Self::Ended(Ended::Code(code), usage) => (2, code, usage),
            Self::Ended(Ended::Signal(signal), usage) => (3, signal, usage),
        };
        let mut bytes = [0; Self::SIZE];
        bytes[0] = kind;
        bytes[1..5].copy_from_slice(&number.to_le_bytes());
        let used = [
            usage.user_us,
            usage.system_us,
            usage.peak_rss_bytes,
            usage.read_bytes,
            usage.written_bytes,
        ];
        for (place, value) in bytes[5..].chunks_exact_mut(8).zip(used) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    fn from_bytes(bytes: &[u8; Self::SIZE]) -> Option<Self> {
        let (kind, rest) = bytes.split_first()?;
        let (number, rest) = rest.split_first_chunk()?;
        let number = i32::from_le_bytes(*number);
        let used = |index: usize| {
            let at = rest.get(index * 8..).and_then(<[u8]>::first_chunk);
            at.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let usage = Usage {
            user_us: used(0),
            system_us: used(1),
            peak_rss_bytes: used(2),
            read_bytes: used(3),
            written_bytes: used(4),
        };
        match kind {
            0 => Some(Self::Spawned(number)),
            1 => Some(Self::NotSpawned { errno: number }),
            2 => Some(Self::Ended(Ended::Code(number), usage)),
            3 => Some(Self::Ended(Ended::Signal(number), usage)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_socket() {
        let usage = Usage {
            user_us: 1,
            system_us: u64::MAX,
            peak_rss_bytes: 1 << 40,
            read_bytes: 512,
            written_bytes: 7,
        };
        for report in [
            Report::Spawned(4_194_304),
            Report::NotSpawned { errno: 11 },
            Report::Ended(Ended::Code(255), usage),
            Report::Ended(Ended::Signal(9), usage),
        ] {
            assert_eq!(Report::from_bytes(&report.to_bytes()), Some(report));
        }
        for order in [
            Order::Kill,
            Order::Signal { scope: Scope::Leader, number: 15 },
            Order::Signal { scope: Scope::Group, number: 64 },
        ] {
            assert_eq!(Order::from_bytes(order.to_bytes()), Some(order));
        }
        assert_eq!(Report::from_bytes(&[9; Report::SIZE]), None);
        assert_eq!(Order::from_bytes([9; Order::SIZE]), None);
    }
}
