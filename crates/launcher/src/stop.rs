//! Ending and removing a sandbox, from whatever state it is in.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use belljar_sys::process;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};

use crate::failure::{Result, Stage};
use crate::fault::point;
use crate::place::{self, check_id};
use crate::runtime::STAGED_DISK;
use crate::serve::Launcher;
use crate::wire::{Counters, Failure, Object};
use crate::{disk, runtime};

/// A sandbox that has been killed and is not gone yet.
pub(crate) struct Stopping {
    pub(crate) id: String,
    /// Readable once the agent, and with it everything in its PID namespace, has ended.
    pub(crate) pidfd: OwnedFd,
    /// The mount namespace, kept from being taken apart while somebody waits for the end of the processes.
    mounts: Option<OwnedFd>,
    /// When waiting is over: a process that hangs in the kernel must not hold up whoever destroys its sandbox.
    pub(crate) deadline: Instant,
}

/// How long a killed sandbox may take to end. Orderly ends take milliseconds; one that is set aside loses nothing.
const PATIENCE: Duration = Duration::from_secs(3);

/// How often removal of a cgroup is tried again while the kernel still takes its last tasks apart.
const REMOVE_ATTEMPTS: usize = 50;
const REMOVE_PAUSE_MS: i64 = 2;

impl Launcher {
    /// Kills. `None`: there is nothing to wait for.
    pub(crate) fn kill(&self, id: &str) -> Result<Option<Stopping>> {
        check_id(id)?;
        let recorded =
            self.place.open_sandbox(id).ok().and_then(|sandbox| place::read_process(&sandbox));
        let running = recorded.and_then(|identity| Some((identity.pid, identity.open()?)));
        let Some((pid, pidfd)) = running else {
            if self.place.is_hanging(id) {
                return Ok(None);
            }
            // A child that died before it was on record, or never was one.
            self.cgroups.group(&self.place.group, id).kill();
            return Ok(None);
        };
        let mounts = format!("/proc/{pid}/ns/mnt");
        let mounts = rustix::fs::open(mounts, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok();
        process::kill(&pidfd)
            .map_err(|error| Failure::new("kill", error.raw_os_error().unwrap_or(0)))?;
        point("launcher.stop.killed");
        Ok(Some(Stopping { id: id.to_owned(), pidfd, mounts, deadline: Instant::now() + PATIENCE }))
    }

    /// Removes what is left of a sandbox whose processes have ended.
    pub(crate) fn remove(&mut self, id: &str) -> Result<()> {
        if self.place.is_hanging(id) {
            self.sweep_hanging();
            return Ok(()); // gone, or as gone as it can be
        }
        self.remove_group(id)?;
        point("launcher.stop.cgroup");
        let more = self.place.discard(id);
        point("launcher.stop.discarded");
        if more {
            self.sweeper.empty_trash(&self.place);
        }
        Ok(())
    }

    /// Removes the cgroups of a sandbox or cell, with a little patience for tasks that are being taken apart.
    pub(crate) fn remove_group(&self, name: &str) -> Result<()> {
        let group = self.cgroups.group(&self.place.group, name);
        let mut removed = group.remove();
        for _ in 0..REMOVE_ATTEMPTS {
            if removed.is_ok() {
                break;
            }
            group.kill();
            let pause = Timespec { tv_sec: 0, tv_nsec: REMOVE_PAUSE_MS * 1_000_000 };
            let _ = rustix::thread::nanosleep(&pause);
            removed = group.remove();
        }
        removed.map_err(|error| Failure::new("cgroup-remove", error.raw_os_error().unwrap_or(0)))
    }

    /// Waits for a killed sandbox and removes it; one that does not end in time is set aside.
    pub(crate) fn see_off(&mut self, stopping: Stopping) -> Result<()> {
        loop {
            let left = stopping.deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(left).unwrap_or_default();
            match poll(&mut [PollFd::new(&stopping.pidfd, PollFlags::IN)], Some(&timeout)) {
                Ok(0) => return self.set_aside(&stopping.id),
                Ok(_) => return self.finish(stopping),
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(Failure::new("wait", errno.raw_os_error())),
            }
        }
    }

    /// Lets go of a sandbox whose processes hang in the kernel. They are dead to everybody but the kernel; what they
    /// still hold is removed by [`Self::sweep_hanging`] once it lets them end.
    pub(crate) fn set_aside(&mut self, id: &str) -> Result<()> {
        self.place.set_aside(id);
        self.has_hanging = true;
        Ok(())
    }

    /// Removes what was set aside and has ended since.
    pub(crate) fn sweep_hanging(&mut self) {
        self.has_hanging = false;
        for id in self.place.hanging() {
            let sandbox = self.place.open_hanging(&id).ok();
            let identity = sandbox.and_then(|sandbox| place::read_process(&sandbox));
            let ended = identity.is_none_or(|identity| {
                // If it is a child of ours, it stays as a zombie until somebody asks how it ended.
                if let Some(pidfd) = identity.open() {
                    process::reap(pidfd.as_fd());
                }
                identity.open().is_none()
            });
            if ended && self.remove_group(&id).is_ok() {
                self.place.take_back(&id);
                let _ = self.remove(&id);
            } else {
                self.has_hanging = true;
            }
        }
    }

    pub(crate) fn finish(&mut self, stopping: Stopping) -> Result<()> {
        process::reap(stopping.pidfd.as_fd());
        if let Some(mounts) = stopping.mounts {
            self.sweeper.take(mounts);
        }
        self.remove(&stopping.id)
    }

    /// Stops everything in a sandbox that runs, or lets it go on. A kill reaches it either way.
    pub(crate) fn freeze(&self, id: &str, frozen: bool) -> Result<()> {
        check_id(id)?;
        self.cgroups.group(&self.place.group, id).freeze(frozen).stage("freeze")
    }

    pub(crate) fn counters(&self, id: &str) -> Result<Counters> {
        check_id(id)?;
        let counted = self.cgroups.group(&self.place.group, id).counters();
        let free = self.place.open_sandbox(id).ok().and_then(|sandbox| {
            let path = if runtime::encloses(&sandbox) { STAGED_DISK } else { "tmp" };
            disk::free_space(place::read_process(&sandbox)?.pid, path)
        });
        Ok(Counters {
            oom_kills: counted.oom_kills,
            pids_refused: counted.pids_refused,
            memory_bytes: counted.memory_bytes,
            memory_peak_bytes: counted.memory_peak_bytes,
            cpu_us: counted.cpu_us,
            pids: counted.pids,
            disk_free_bytes: free.map(|(bytes, _)| bytes),
            disk_free_inodes: free.map(|(_, inodes)| inodes),
        })
    }

    /// Everything on this host that belongs to this installation.
    pub(crate) fn find(&self) -> Vec<Object> {
        let object = |kind: &str, name: String, id: Option<String>| Object {
            kind: kind.to_owned(),
            name,
            id,
        };
        let mut found = Vec::new();
        for id in self.place.hanging() {
            found.push(object("process", "hangs in the kernel".to_owned(), Some(id)));
        }
        for id in self.place.sandboxes() {
            let process = self
                .place
                .open_sandbox(&id)
                .ok()
                .and_then(|sandbox| place::read_process(&sandbox))
                .filter(|identity| identity.open().is_some());
            if let Some(identity) = process {
                found.push(object("process", identity.pid.to_string(), Some(id.clone())));
            }
            found.push(object("directory", format!("run/sandboxes/{id}"), Some(id)));
        }
        for id in self.cgroups.groups(&self.place.group) {
            if cell_is_alive(&id) {
                continue;
            }
            found.push(object("cgroup", format!("{}/{id}", self.place.group), Some(id)));
        }
        let in_use = self.place.ranges_in_use();
        for (range, cell) in self.place.ranges() {
            if cell_is_alive(&cell) || in_use.contains(&range) {
                continue;
            }
            found.push(object("id-range", range.to_string(), Some(cell)));
        }
        found
    }
}

/// Cells of a launcher that is at work are its reserve, not something left over.
fn cell_is_alive(name: &str) -> bool {
    crate::helper::cell_launcher(name).is_some_and(|launcher| launcher.open().is_some())
}
