//! Namespaces of the calling process.

use std::io;

/// Moves the calling process into a new network namespace with nothing but loopback, which is up.
pub fn new_network() -> io::Result<()> {
    // SAFETY: a network namespace concerns sockets made from now on; no memory, descriptor or thread state changes.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    crate::child::loopback_up().map_err(io::Error::from_raw_os_error)
}
