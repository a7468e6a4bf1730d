//! How the whole tree of one process is found and killed.
//!
//! Either every member is in a cgroup of its own, or a supervisor adopts every orphan among them, or the agent does for one
//! process at a time. In each case a daemon that left its session and its parents is still found.

pub(crate) mod cgroup;
pub(crate) mod direct;
pub(crate) mod supervisor;

use std::io;
use std::time::Instant;

use belljar_sys::signals;
use rustix::process::Pid;

use cgroup::Cgroup;
use direct::Direct;
use supervisor::{Order, Supervisor};

#[derive(Debug)]
pub(crate) enum Tree {
    Cgroup(Cgroup),
    Supervised(Supervisor),
    Direct(Direct),
}

/// Who of a process's own session gets a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Leader,
    Group,
}

impl Tree {
    /// Kills every member for certain, sooner or later.
    pub(crate) fn kill(&mut self, now: Instant) -> io::Result<()> {
        match self {
            Self::Cgroup(cgroup) => cgroup.kill(),
            Self::Supervised(supervisor) => {
                supervisor.kill(now);
                Ok(())
            }
            Self::Direct(direct) => {
                direct.kill(now);
                Ok(())
            }
        }
    }

    /// Signals the main process or its group, as long as it has not been waited for.
    pub(crate) fn signal(&self, main: Option<Pid>, scope: Scope, number: i32) -> io::Result<()> {
        match (self, main) {
            (Self::Cgroup(_) | Self::Direct(_), Some(main)) => match scope {
                Scope::Leader => signals::send(main, number),
                Scope::Group => signals::send_to_group(main, number),
            },
            (Self::Cgroup(_) | Self::Direct(_), None) => Ok(()),
            // Its parent does it, who knows that the number is still the process's own.
            (Self::Supervised(supervisor), _) => supervisor.order(Order::Signal { scope, number }),
        }
    }
}
