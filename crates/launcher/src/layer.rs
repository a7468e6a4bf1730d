//! Giving a sandbox an empty workspace layer.
//!
//! An overlay must not be changed from below while it is mounted, so a new one takes its place. Processes that still
//! have files of the old one open keep it until they close them.

use std::ffi::CString;
use std::os::fd::{AsRawFd, OwnedFd};

use belljar_sys::child::{CloneOptions, FsOption, Plan, Slot, Step};
use belljar_sys::uapi::{MOUNT_ATTR_NODEV, MOUNT_ATTR_NOSUID};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::failure::{Result, Stage};
use crate::ids::{self, AGENT};
use crate::place::{self, Identity, check_id};
use crate::plan::{CLONE_NEWNS, CLONE_NEWUSER};
use crate::runtime;
use crate::serve::Launcher;
use crate::wire::Failure;

const MOUNT: Slot = Slot(0);

impl Launcher {
    pub(crate) fn reset_layer(&self, id: &str) -> Result<()> {
        check_id(id)?;
        let gone = || Failure::new("find-sandbox", Errno::SRCH.raw_os_error());
        let sandbox = self.place.open_sandbox(id).stage("find-sandbox")?;
        if runtime::has_own_kernel(&sandbox) {
            // Its mounts are in a kernel that takes no orders from here.
            return Err(Failure::new("runtime-layer", Errno::NOTSUP.raw_os_error()));
        }
        let mut process = place::read_process(&sandbox).ok_or_else(gone)?;
        let mut held = process.open().ok_or_else(gone)?;
        let enclosed = runtime::encloses(&sandbox);
        if enclosed {
            process = runtime::agent_of(process.pid).ok_or_else(gone)?;
            held = process.open().ok_or_else(gone)?;
        }
        let namespace = |name: &str| -> Result<OwnedFd> {
            let path = format!("/proc/{}/ns/{name}", process.pid);
            rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
                .stage("namespace")
        };
        let (users, mounts) = (namespace("user")?, namespace("mnt")?);
        let Identity { uid, gid, range } = Identity::read(&sandbox).ok_or_else(gone)?;
        let mut steps = Vec::new();
        if range.is_none() {
            steps.push(Step::JoinNamespace { descriptor: users.as_raw_fd(), kind: CLONE_NEWUSER });
        }
        steps.push(Step::JoinNamespace { descriptor: mounts.as_raw_fd(), kind: CLONE_NEWNS });
        let act_as = |uid: u32, gid: u32| {
            range.map(|range| Step::FilesystemIds {
                uid: ids::outside(range, uid),
                gid: ids::outside(range, gid),
            })
        };
        let make =
            |path: &std::ffi::CStr, mode: u32| Step::MakeDirectory { path: path.to_owned(), mode };
        steps.push(Step::Enter { path: c"/run/belljar/private".to_owned() });
        if !enclosed {
            steps.push(Step::Detach { path: c"/workspace".to_owned() });
        } // otherwise it came from a namespace of greater power and stays, below the new one
        steps.extend(act_as(AGENT, AGENT));
        steps.push(Step::Rename { from: c"layers/workspace-0".to_owned(), to: retired() });
        steps.push(make(c"layers/workspace-0", 0o700));
        steps.extend(act_as(uid, gid));
        steps.push(make(c"layers/workspace-0/upper", 0o755));
        steps.extend(act_as(0, 0));
        steps.push(make(c"layers/workspace-0/work", 0o700));
        let option = |key: &std::ffi::CStr, value: &std::ffi::CStr| {
            FsOption::Text(key.to_owned(), value.to_owned())
        };
        steps.push(Step::NewFilesystem {
            kind: c"overlay".to_owned(),
            options: vec![
                option(c"lowerdir", c"lower"),
                option(c"upperdir", c"layers/workspace-0/upper"),
                option(c"workdir", c"layers/workspace-0/work"),
                FsOption::Flag(c"userxattr".to_owned()),
            ],
            attributes: MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV,
            to: MOUNT,
        });
        steps.push(Step::AttachAt { slot: MOUNT, path: c"/workspace".to_owned() });
        let mut child = Plan { steps }.spawn(&CloneOptions::default()).stage("clone")?;
        let report = child.report().stage("report");
        drop(held);
        belljar_sys::process::wait(std::os::fd::AsFd::as_fd(&child.pidfd));
        match report? {
            None => Ok(()),
            Some(failed) => Err(Failure::of_step(child.plan(), failed)),
        }
    }
}

/// A name for the layer that is let go; its blocks stay on the sandbox's own disk until the sandbox ends.
fn retired() -> CString {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    CString::new(format!("layers/retired-{}-{}", now.tv_sec, now.tv_nsec))
        .expect("numbers contain no NUL")
}
