//! The agent's own watch over the workload's memory, where no cgroup does it.
//!
//! Resident memory is summed up cheaply; only when the sum is above the limit are shared pages told apart, where the
//! kernel lets us look, so that a program that forks is not taken for one that hoards.

use std::time::{Duration, Instant};

use belljar_protocol::v1::UsageReport;
use belljar_sys::fork;

use crate::agent::Agent;
use crate::procfs;

/// Often enough that memory cannot grow by much in between, rarely enough to cost little.
const INTERVAL: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub(crate) struct MemoryWatch {
    limit: u64,
    next: Instant,
}

impl MemoryWatch {
    /// `None` where no limit was given.
    pub(crate) fn new(limit: u64, now: Instant) -> Option<Self> {
        (limit > 0).then_some(Self { limit, next: now })
    }

    /// The first of the workload is about to start: it cannot have grown before it has run for a while.
    pub(crate) fn wait(&mut self, now: Instant) {
        self.next = self.next.max(now + INTERVAL);
    }

    /// When to look again; never while nothing runs.
    pub(crate) fn next_check(&self, running: bool) -> Option<Instant> {
        running.then_some(self.next)
    }
}

impl Agent {
    pub(crate) fn watch_memory(&mut self) {
        let Some(watch) = &mut self.memory else { return };
        if self.now < watch.next {
            return;
        }
        watch.next = self.now + INTERVAL;
        let limit = watch.limit;
        if !self.has_trees() {
            return;
        }
        let processes = procfs::descendants();
        if self.is_crowded(&processes) {
            for process in self.processes.values_mut().filter(|process| process.is_running()) {
                process.pids_exhausted = true;
            }
        }
        if resident(&processes) <= limit || proportional() <= limit {
            return;
        }
        for process in self.processes.values_mut().filter(|process| process.is_running()) {
            process.memory_exceeded = true;
        }
        self.kill_everything();
    }

    pub(crate) fn usage(&self) -> UsageReport {
        let processes = procfs::descendants();
        let (user_us, system_us) =
            self.cgroups.as_ref().and_then(|cgroups| cgroups.time()).unwrap_or_else(|| {
                let ended = fork::usage_of_children();
                processes.iter().fold((ended.user_us, ended.system_us), |(user, system), entry| {
                    (user + entry.user_us, system + entry.system_us)
                })
            });
        UsageReport {
            processes: processes.len() as u32,
            resident_bytes: resident(&processes),
            user_us,
            system_us,
            uptime_ms: self.now.duration_since(self.started).as_millis() as u64,
        }
    }
}

fn resident(processes: &[procfs::Entry]) -> u64 {
    processes.iter().map(|entry| entry.resident_bytes).sum()
}

fn proportional() -> u64 {
    procfs::descendants()
        .iter()
        .map(|entry| procfs::proportional_bytes(entry.pid).unwrap_or(entry.resident_bytes))
        .sum()
}
