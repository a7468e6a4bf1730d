//! The network of a container on this host: its namespace, for the launcher to lead to a gateway.

use std::os::fd::OwnedFd;

use belljar_backend::{Error, Result};
use belljar_codes::Code;
use rustix::fs::{Mode, OFlags};

/// The network namespace of a container's first process.
///
/// The process must be the container's after the namespace was opened, so that a number which was given to another process
/// meanwhile leads nowhere.
pub(crate) fn namespace(container: &str, pid: i32) -> Result<OwnedFd> {
    let gone = || {
        Error::new(Code::SandboxGone, "the sandbox has ended")
            .with_remedy("it has ended; create a new one")
    };
    let path = format!("/proc/{pid}/ns/net");
    let namespace = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|errno| gone().with_source(std::io::Error::from(errno)))?;
    if !belongs_to(container, pid) {
        return Err(gone());
    }
    Ok(namespace)
}

/// The root directory of a container's first process, under the same condition.
pub(crate) fn root(container: &str, pid: i32) -> Result<OwnedFd> {
    let unseen = |error: std::io::Error| {
        Error::new(Code::StartFailed, "the container's files cannot be looked at")
            .with_source(error)
            .with_remedy("the engine may be on another machine; name it as `tcp://`")
    };
    let path = format!("/proc/{pid}/root");
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root =
        rustix::fs::open(path, flags, Mode::empty()).map_err(|errno| unseen(errno.into()))?;
    if !belongs_to(container, pid) {
        return Err(unseen(std::io::Error::other("the process is not the container's")));
    }
    Ok(root)
}

/// Whether the kernel has the process in the container's cgroup: engines name it by the container's whole id.
fn belongs_to(container: &str, pid: i32) -> bool {
    container.len() >= 32
        && std::fs::read_to_string(format!("/proc/{pid}/cgroup"))
            .is_ok_and(|text| text.contains(container))
}
