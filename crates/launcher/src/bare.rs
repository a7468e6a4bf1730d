//! A mount namespace with nothing in it but places to mount at, in which sandboxes begin.
//!
//! A sandbox that began in a copy of the host's would have to let go of it: the kernel copies every mount of the host,
//! looks at every process there is for who uses the old root, and waits until nobody can be on his way in what was let
//! go of. Here there is nothing to let go of: a sandbox covers this root with its own.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use belljar_sys::child::{CloneOptions, FsOption, Plan, Source, Step};
use belljar_sys::process;
use rustix::fs::{Mode, OFlags};

use crate::failure::{Result, Stage};
use crate::plan::{CLONE_NEWNS, DEVICES, MOUNT, PLACES, PLAIN, READ_ONLY, ROOT, text};
use crate::wire::Failure;

/// Where a sandbox that needs more places mounts a file system to make them in.
pub(crate) const STAGE: &str = "/stage";

/// Makes the namespace. It lives as long as the descriptor: a sandbox that begins in it leaves with a copy.
pub(crate) fn make(staging: &Path) -> Result<OwnedFd> {
    let staging = text(staging.as_os_str().as_encoded_bytes())?;
    let option = |key: &std::ffi::CStr, value: &std::ffi::CStr| {
        FsOption::Text(key.to_owned(), value.to_owned())
    };
    let directory = |path: &str| {
        Ok::<_, Failure>(Step::MakeDirectory { path: text(path.as_bytes())?, mode: 0o755 })
    };
    let mut steps = vec![
        Step::MakePrivate,
        Step::NewFilesystem {
            kind: c"tmpfs".to_owned(),
            options: vec![option(c"size", c"64k"), option(c"mode", c"0755")],
            attributes: PLAIN,
            to: MOUNT,
        },
        Step::AttachAt { slot: MOUNT, path: staging.clone() },
        Step::Enter { path: staging },
        directory(STAGE.trim_start_matches('/'))?,
        directory("dev")?,
    ];
    for place in PLACES {
        steps.push(directory(place)?);
    }
    // Each at the path that it has on the host, and the host's own.
    for device in DEVICES {
        let name = device.to_str().expect("a device name is plain text");
        let (host, here) = (format!("/dev/{name}"), format!("dev/{name}"));
        let (host, here) = (text(host.as_bytes())?, text(here.as_bytes())?);
        steps.push(Step::MakeFile { path: here.clone() });
        steps.push(Step::OpenTree { from: Source::Path(host), recursive: false, to: MOUNT });
        steps.push(Step::AttachAt { slot: MOUNT, path: here });
    }
    steps.push(Step::OpenDirectory { path: c".".to_owned(), to: ROOT });
    steps.push(Step::Attributes { slot: ROOT, recursive: false, set: READ_ONLY, idmap: None });
    steps.push(Step::PivotRoot { slot: ROOT });
    steps.push(Step::Await); // a process that has ended shows nobody its namespace

    let options = CloneOptions { namespaces: CLONE_NEWNS as u64, ..CloneOptions::default() };
    let mut child = Plan { steps }.spawn(&options).stage("clone")?;
    let path = format!("/proc/{}/ns/mnt", child.pid);
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let namespace = rustix::fs::open(path, flags, Mode::empty()).stage("mount-namespace");
    let _ = rustix::io::write(&child.go, b"g"); // one that has failed says so below
    let failed = child.report().stage("report")?;
    process::wait(child.pidfd.as_fd());
    match failed {
        Some(failed) => Err(Failure::of_step(child.plan(), failed)),
        None => belljar_sys::child::keep_clear(namespace?).stage("mount-namespace"),
    }
}
