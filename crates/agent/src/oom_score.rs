//! The agent's own out-of-memory score, raised while it clones, so that the kernel takes the workload first.
//!
//! The score is inherited by a clone, and may be lowered again to where it was without any privilege. Setting the
//! clone's own score instead would need privilege: whoever is shielded owns no file of its own in `/proc`.

use std::os::fd::OwnedFd;

use rustix::fs::{Mode, OFlags};

use crate::procfs::read_small;

#[derive(Debug)]
pub(crate) struct OomScore {
    /// Open for writing; `None` where there is no such file, then the score stays as it is for everyone.
    file: Option<OwnedFd>,
    own: String,
}

/// High, but not so high that being killed first is certain before memory is really short.
const WORKLOAD: &str = "800";

impl OomScore {
    /// Precondition: this process is not shielded yet.
    pub(crate) fn open() -> Self {
        let flags = OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open("/proc/self/oom_score_adj", flags, Mode::empty()).ok();
        let own = file.as_ref().map(read_small).unwrap_or_default();
        let raised = own.trim().parse().is_ok_and(|own: i32| own >= 800);
        Self { file: file.filter(|_| !raised), own }
    }

    /// Does something that clones this process.
    pub(crate) fn raised<T>(&self, act: impl FnOnce() -> T) -> T {
        self.set(WORKLOAD);
        let result = act();
        self.set(&self.own);
        result
    }

    fn set(&self, score: &str) {
        if let Some(file) = &self.file {
            // Failing costs only the order in which the kernel kills.
            let _ = rustix::io::pwrite(file, score.as_bytes(), 0);
        }
    }
}
