//! Namespaces of the calling process.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use rustix::fs::{Mode, OFlags};

/// Moves the calling process into a new network namespace with nothing but loopback, which is up.
pub fn new_network() -> io::Result<()> {
    // SAFETY: a network namespace concerns sockets made from now on; no memory, descriptor or thread state changes.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    crate::child::loopback_up().map_err(io::Error::from_raw_os_error)
}

/// The network namespace that the calling thread is in.
pub fn network() -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(rustix::fs::open("/proc/thread-self/ns/net", flags, Mode::empty())?)
}

/// Moves the calling thread into a network namespace.
pub fn join_network(namespace: BorrowedFd<'_>) -> io::Result<()> {
    join(namespace, libc::CLONE_NEWNET)
}

/// Moves the calling process, which must have one thread, into a user namespace, with all capabilities in it.
pub fn join_user(namespace: BorrowedFd<'_>) -> io::Result<()> {
    join(namespace, libc::CLONE_NEWUSER)
}

fn join(namespace: BorrowedFd<'_>, kind: i32) -> io::Result<()> {
    // SAFETY: the kernel checks that the descriptor is a namespace of this kind; no memory is passed.
    match unsafe { libc::setns(namespace.as_raw_fd(), kind) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
