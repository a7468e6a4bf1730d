//! The tree of a process that the agent started by itself, without a supervisor: for kernels in which a copy of a process
//! takes as long as all the rest of a start (gVisor's).
//!
//! There is at most one at a time, so that its members are told from others: its orphans come to the agent, and whoever is
//! below the agent and below none of the agent's own helpers is one of them. Only for an agent that is the first process:
//! elsewhere nothing would end the tree together with the agent.

use std::time::{Duration, Instant};

use belljar_sys::workload::Beside;
use belljar_sys::{fork, signals};
use rustix::process::{Pid, Signal};

use super::Tree;
use crate::agent::{Agent, Child};
use crate::procfs::{self, Entry};

#[derive(Debug)]
pub(crate) struct Direct {
    /// What the child reads until it is the program.
    beside: Option<Beside>,
    /// When to look for members and kill them, and how long to wait then; `None`: they may live.
    kill_at: Option<(Instant, Duration)>,
}

/// Before members are looked for again, ever later: who is still there after several times waits in the kernel.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// How often in a row.
const LOOKS: usize = 16;

impl Direct {
    pub(crate) fn new(beside: Beside) -> Self {
        Self { beside: Some(beside), kill_at: None }
    }

    pub(crate) fn kill(&mut self, now: Instant) {
        self.kill_at.get_or_insert((now, FIRST_PAUSE));
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.kill_at.map(|(at, _)| at)
    }

    /// Gives memory back once the child is the program; before, it stays until the tree is gone.
    pub(crate) fn forget_plan(&mut self) {
        self.beside.take_if(|beside| beside.has_left());
    }
}

impl Agent {
    /// The process that has no supervisor.
    pub(crate) fn direct(&self) -> Option<u32> {
        let mut all = self.processes.iter();
        all.find(|(_, process)| matches!(process.tree, Some(Tree::Direct(_)))).map(|(key, _)| key)
    }

    /// Kills whoever is there of a tree that is to end; not for the last time, if there was anyone.
    pub(crate) fn kill_direct(&mut self) {
        let now = self.now;
        let Some(key) = self.direct() else { return };
        let Some(process) = self.processes.get_mut(key) else { return };
        if let Some(Tree::Direct(Direct { kill_at: Some((at, pause)), .. })) = &mut process.tree
            && *at <= now
        {
            let again = *pause > FIRST_PAUSE;
            *at = now + *pause;
            *pause = (*pause * 2).min(LONGEST_PAUSE);
            let alone = self.children.iter().all(|(_, child)| matches!(child, Child::Main(_)));
            if again && alone {
                // Whoever escapes every look does not escape the kernel's. It also takes who came from outside, so
                // others are spared it.
                let _ = signals::send_to_all(Signal::KILL.as_raw());
            } else {
                self.end_direct();
            }
        }
    }

    /// Who is stopped starts nobody, and those who are killed only then make no room for others: so even a tree that grows
    /// as fast as it can is found whole.
    fn end_direct(&self) {
        let mut members = self.strays(true);
        for _ in 0..LOOKS {
            signal(&members, Signal::STOP);
            let now = self.strays(true);
            let all = now.iter().all(|entry| members.iter().any(|known| known.pid == entry.pid));
            members = now;
            if all {
                break;
            }
        }
        kill(&members);
    }

    /// Whether nobody of a process without supervisor is left, after its main process has ended. Only the kernel can tell,
    /// who makes every orphan a child of the agent: a look at the table misses those who come and go. So while the agent
    /// has other children, it is not known.
    pub(crate) fn direct_is_over(&self) -> bool {
        self.children.len() == 0 && !fork::has_children()
    }

    /// Whoever is below the agent and below nobody that the agent started; a process without supervisor, and those below
    /// it, count or not.
    pub(crate) fn strays(&self, with_direct: bool) -> Vec<Entry> {
        let mut all = procfs::below_self();
        let helpers: Vec<i32> = self
            .children
            .iter()
            .filter(|(_, child)| !with_direct || !matches!(child, Child::Main(_)))
            .map(|(pid, _)| pid)
            .collect();
        let mut theirs = all.clone();
        procfs::retain_below(&mut theirs, &helpers);
        all.retain(|entry| !helpers.contains(&entry.pid) && !theirs.contains(entry));
        all
    }
}

pub(crate) fn kill(entries: &[Entry]) {
    signal(entries, Signal::KILL);
}

fn signal(entries: &[Entry], signal: Signal) {
    for entry in entries {
        if let Some(pid) = Pid::from_raw(entry.pid) {
            let _ = signals::send(pid, signal.as_raw());
        }
    }
}
