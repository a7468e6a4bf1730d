//! Ranges of user ids, one per sandbox.
//!
//! A range is taken by making a link named after it, which the kernel does for exactly one of several askers. It is a
//! link to a file that names the owner.

use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, linkat, unlinkat};
use rustix::io::Errno;

/// Ids per range: what images and distributions expect to exist.
pub(crate) const RANGE: u32 = 65536;
/// Where ranges start: above what distributions, containers and systemd hand out, below the sign bit that some
/// programs trip over.
const FIRST: u32 = 0x7000_0000;
/// From one range to the next. The kernel finds a user by a hash of the low bits: if they were the same for all ranges, it
/// would look through everybody's at each change of user.
const STRIDE: u32 = RANGE + 1;
/// Up to the range that systemd keeps for foreign images.
const COUNT: u32 = (0x7FFE_0000 - FIRST) / STRIDE;

/// The agent's own user inside a sandbox; no workload runs as it.
pub(crate) const AGENT: u32 = 65533;

/// The host's id for `inside` in a range.
pub(crate) fn outside(range: u32, inside: u32) -> u32 {
    FIRST + range * STRIDE + inside
}

/// Takes a free range for `owner`, whose file is given. The choice starts at a place that depends on the name of what it
/// is for, so that installations which know nothing of each other rarely meet.
pub(crate) fn take(directory: BorrowedFd<'_>, owner: &Path, purpose: &str) -> io::Result<u32> {
    let start =
        purpose.bytes().fold(0u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(byte.into()));
    for step in 0..COUNT {
        let range = start.wrapping_add(step) % COUNT;
        match linkat(CWD, owner, directory, range.to_string(), AtFlags::empty()) {
            Ok(()) => return Ok(range),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
    Err(Errno::USERS.into())
}

pub(crate) fn give_back(directory: BorrowedFd<'_>, range: u32) {
    let _ = unlinkat(directory, range.to_string(), AtFlags::empty());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_apart_and_so_are_their_users_in_the_kernels_table() {
        let mut buckets: Vec<u32> = (0..128)
            .map(|range| {
                assert!(outside(range, RANGE - 1) < outside(range + 1, 0));
                let user = outside(range, AGENT);
                ((user >> 7) + user) % 128
            })
            .collect();
        buckets.sort_unstable();
        buckets.dedup();
        assert!(buckets.len() > 64, "{} of 128", buckets.len());
        assert!(outside(COUNT - 1, RANGE - 1) < 0x7FFE_0000);
    }
}
