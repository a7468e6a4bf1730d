//! Memory that those who are gone have left in use.

use belljar_sys::shared_memory;

/// Whether there is any. Where that cannot be told there may be.
pub(crate) fn are_there() -> bool {
    let files = rustix::fs::statvfs("/dev/shm").is_ok_and(|shown| shown.f_bfree < shown.f_blocks);
    files || shared_memory::segments().map_or(true, |segments| segments > 0)
}
