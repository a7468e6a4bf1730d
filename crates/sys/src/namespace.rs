//! Namespaces of the calling process.

use std::io;

/// Moves the calling process into a new, empty network namespace.
pub fn new_network() -> io::Result<()> {
    // SAFETY: a network namespace concerns sockets made from now on; no memory, descriptor or thread state changes.
    let result = unsafe { libc::unshare(libc::CLONE_NEWNET) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
