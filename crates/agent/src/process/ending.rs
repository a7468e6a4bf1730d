//! How processes end: waited for, timed out, cancelled, killed with everything below them.

use std::time::{Duration, Instant};

use belljar_protocol::v1::{Exited, exited};
use belljar_sys::fork::{self, Ended, Usage};
use rustix::process::Signal;

use super::Process;
use crate::agent::{Agent, Child};
use crate::failure::Result;
use crate::tree::{Scope, Tree, direct};

impl Agent {
    /// Waits for every child that has ended: those we started, and those that became ours.
    pub(crate) fn reap(&mut self) {
        while let Some((pid, ended, usage)) = fork::reap() {
            match self.children.remove(pid.as_raw_nonzero().get()) {
                Some(Child::Main(key)) => self.main_ended(key, ended, usage),
                Some(Child::Supervisor(key)) => self.supervisor_ended(key, ended),
                Some(Child::Worker(key)) => self.worker_ended(key),
                None => {}
            }
        }
        if self.sweeping {
            // Whoever descends from a child that we started ourselves is in good hands.
            let orphans = self.strays(false);
            direct::kill(&orphans);
            self.sweeping = !orphans.is_empty();
        }
        if let Some(key) = self.direct() {
            self.release_tree(key);
        }
    }

    pub(crate) fn main_ended(&mut self, key: u32, ended: Ended, usage: Usage) {
        let window = self.window();
        // It has run until now, however long ago the loop last turned.
        self.lease.touch(self.now);
        // Only of one that failed, since looking takes a while.
        let crowded = ended != Ended::Code(0) && self.was_crowded();
        let Some(process) = self.processes.get_mut(key) else { return };
        process.pids_exhausted |= crowded;
        // The exit may be seen before the word about the start.
        process.read_status();
        process.status = None;
        process.grow_up();
        if process.not_started.is_none() && process.is_running() {
            // What it wrote comes before the word about its end, as far as there is room.
            for index in 0..process.channels.len() {
                process.read(index, window, &mut self.scratch);
            }
            process.end(ended, usage);
        }
        process.input.close();
        process.timeout = None;
        process.kill_at = None;
        if process.timed_out || process.cancelled || process.memory_exceeded {
            // Whatever is left of the tree has had its grace.
            process.kill_tree(self.now);
        }
        self.dirty.push(key);
        self.release_tree(key);
    }

    /// A supervisor is gone: with everything below it, or killed by someone.
    fn supervisor_ended(&mut self, key: u32, ended: Ended) {
        // What it said last may still be unread.
        while self.on_supervisor(key) {}
        if ended != Ended::Code(0) {
            // Its tree is ours now, and does not outlive it.
            self.sweeping = true;
        }
        let Some(process) = self.processes.get_mut(key) else { return };
        process.tree = None;
        if process.is_running() && process.not_started.is_none() {
            self.main_ended(key, Ended::Signal(Signal::KILL.as_raw()), Usage::default());
        }
        self.dirty.push(key);
    }

    /// A cgroup has become empty, or not.
    pub(crate) fn on_tree(&mut self, number: u32) {
        let owner = self.processes.iter().find(|(_, process)| {
            matches!(&process.tree, Some(Tree::Cgroup(cgroup)) if cgroup.number == number)
        });
        if let Some((key, _)) = owner {
            self.release_tree(key);
        }
    }

    /// Takes the cgroup back when the main process has ended and nobody is left in it.
    fn release_tree(&mut self, key: u32) {
        let Some(process) = self.processes.get(key) else { return };
        if process.is_running() && process.not_started.is_none() {
            return;
        }
        let over = matches!(process.tree, Some(Tree::Direct(_))) && self.direct_is_over();
        let Some(process) = self.processes.get_mut(key) else { return };
        match process.tree.take() {
            Some(Tree::Cgroup(mut cgroup)) => {
                let empty = cgroup.is_empty();
                if empty || cgroup.wait_until_empty().is_err() {
                    if !empty {
                        // Nobody would hear of its end, so that is now.
                        let _ = cgroup.kill();
                    }
                    if let Some(cgroups) = &mut self.cgroups {
                        cgroups.give_back(cgroup);
                    }
                    self.dirty.push(key);
                } else {
                    process.tree = Some(Tree::Cgroup(cgroup));
                }
            }
            Some(Tree::Direct(_)) if over => self.dirty.push(key),
            other => process.tree = other,
        }
    }

    /// Does what is due: timeouts, kills after a grace time, supervisors that take too long.
    pub(crate) fn meet_deadlines(&mut self) {
        let now = self.now;
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        for (key, process) in self.processes.iter_mut() {
            if !is_due(process.deadline()) {
                continue;
            }
            if let Some((at, grace)) = process.timeout
                && at <= now
            {
                process.timeout = None;
                process.timed_out = true;
                process.ask_to_leave(grace, now);
            }
            if is_due(process.young_until) {
                process.grow_up();
                self.dirty.push(key);
            }
            if is_due(process.kill_at) {
                process.kill_at = None;
                process.kill_tree(now);
            }
            if let Some(Tree::Supervised(supervisor)) = &mut process.tree
                && is_due(supervisor.deadline())
            {
                supervisor.lose_patience();
            }
            if is_due(process.give_up_at) {
                process.give_up();
                self.lease.touch(now);
                self.dirty.push(key);
            }
        }
        self.kill_direct();
    }

    /// Kills every tree there is.
    pub(crate) fn kill_everything(&mut self) {
        for process in self.processes.values_mut() {
            process.kill_tree(self.now);
        }
    }

    /// Cancels one: TERM to the group, KILL to the tree.
    pub(crate) fn cancel(&mut self, name: &str, grace_ms: u32) -> Result {
        let now = self.now;
        let process = self.running(name)?;
        process.cancelled = true;
        process.ask_to_leave(grace_ms, now);
        Ok(())
    }
}

impl Process {
    /// TERM to the group; KILL to the tree when the grace time is over or the main process has ended.
    fn ask_to_leave(&mut self, grace_ms: u32, now: Instant) {
        if grace_ms == 0 {
            self.kill_tree(now);
            return;
        }
        let at = now + Duration::from_millis(grace_ms.into());
        self.kill_at = Some(self.kill_at.map_or(at, |earlier| earlier.min(at)));
        if let Some(tree) = &self.tree {
            let _ = tree.signal(self.pid, Scope::Group, Signal::TERM.as_raw());
            // A stopped group would not notice before it is too late.
            let _ = tree.signal(self.pid, Scope::Group, Signal::CONT.as_raw());
        }
    }

    /// Whoever waits in the kernel for something that never answers cannot be killed until it does. The host is told
    /// that it has ended; nothing of it will ever run again.
    fn give_up(&mut self) {
        self.give_up_at = None;
        self.status = None;
        if self.is_running() && self.not_started.is_none() {
            self.end(Ended::Signal(Signal::KILL.as_raw()), Usage::default());
        }
        self.input.close();
        self.grow_up();
        for channel in &mut self.channels {
            channel.source = None;
        }
    }

    pub(super) fn kill_tree(&mut self, now: Instant) {
        if self.tree.is_some() && !self.is_closed() {
            self.give_up_at.get_or_insert(now + UNKILLABLE);
        }
        if let Some(tree) = &mut self.tree
            && tree.kill(now).is_err()
        {
            // Better one that is certain than none: the main process is ours to kill in any case.
            let _ = tree.signal(self.pid, Scope::Group, Signal::KILL.as_raw());
        }
    }

    fn end(&mut self, ended: Ended, usage: Usage) {
        let written = self.channels.each_ref().map(|channel| {
            // Counting what is still in the pipe: it was written by now.
            let unread = channel.source.as_ref().and_then(|s| rustix::io::ioctl_fionread(s).ok());
            channel.kept.end() + unread.unwrap_or(0)
        });
        self.ended = Some(Exited {
            process: self.name.clone(),
            status: Some(match ended {
                Ended::Code(code) => exited::Status::Code(code),
                Ended::Signal(signal) => exited::Status::Signal(signal),
            }),
            timed_out: self.timed_out,
            cancelled: self.cancelled,
            memory_exceeded: self.memory_exceeded,
            pids_exhausted: self.pids_exhausted,
            user_us: usage.user_us,
            system_us: usage.system_us,
            peak_rss_bytes: usage.peak_rss_bytes,
            stdout_end: written[0],
            stderr_end: written[1],
            dropped_bytes: self.dropped(),
            read_bytes: usage.read_bytes,
            written_bytes: usage.written_bytes,
        });
    }
}

/// How long after a KILL a process can still take to end: tearing down a large one takes a while.
const UNKILLABLE: Duration = Duration::from_secs(5);
