//! Whether there are as many processes as may be, where a resource limit holds them.
//!
//! The kernel counts what it refused in control groups and nowhere else: RLIMIT_NPROC leaves no trace. So the agent counts
//! who is there, as often as it looks at memory, and when a command has failed. What was refused and had room again by
//! then is not told.

use rustix::process::Resource;

use crate::agent::Agent;
use crate::procfs::{self, Entry};
use crate::tree::Tree;

impl Agent {
    /// Whether one process more would be refused.
    pub(crate) fn is_crowded(&self, processes: &[Entry]) -> bool {
        self.process_limit().is_some_and(|limit| self.counted(processes) >= limit)
    }

    /// The same for the moment before a process ended.
    pub(crate) fn was_crowded(&self) -> bool {
        self.process_limit().is_some_and(|limit| self.counted(&procfs::descendants()) + 1 >= limit)
    }

    fn process_limit(&self) -> Option<u64> {
        let limits = &self.setup.as_ref()?.confinement.limits;
        Some(limits.iter().find(|limit| limit.resource == PROCESSES)?.hard)
    }

    /// Who counts against the limit: everyone of the workload's user, which the agent and its supervisors may have too.
    fn counted(&self, processes: &[Entry]) -> u64 {
        let threads = processes.iter().map(|entry| entry.threads).sum::<u64>();
        if self.setup.as_ref().is_some_and(|setup| setup.single_user) {
            return threads + 1;
        }
        let is_supervised = |tree: &Option<Tree>| matches!(tree, Some(Tree::Supervised(_)));
        let supervisors = self.processes.values().filter(|process| is_supervised(&process.tree));
        threads.saturating_sub(supervisors.count() as u64)
    }
}

const PROCESSES: u32 = Resource::Nproc as u32;
