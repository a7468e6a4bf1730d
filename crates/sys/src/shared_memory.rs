//! Memory that outlives whoever asked for it.

use std::io;
use std::mem::MaybeUninit;

/// How many segments of System V shared memory there are in this IPC namespace.
pub fn segments() -> io::Result<u32> {
    let mut info = MaybeUninit::<Info>::zeroed();
    // SAFETY: `SHM_INFO` writes a `struct shm_info`, of this layout, to where the pointer leads, and looks at nothing else.
    let result = unsafe { libc::syscall(libc::SYS_shmctl, 0, SHM_INFO, info.as_mut_ptr()) };
    if result < 0 {
        let error = io::Error::last_os_error();
        // A kernel without any.
        return if error.raw_os_error() == Some(libc::ENOSYS) { Ok(0) } else { Err(error) };
    }
    // SAFETY: all zeroes is a valid value of this structure of integers, and the kernel has written it besides.
    Ok(unsafe { info.assume_init() }.used.cast_unsigned())
}

const SHM_INFO: libc::c_int = 14;

/// `struct shm_info`.
#[repr(C)]
struct Info {
    used: libc::c_int,
    _pages: [libc::c_ulong; 3],
    _swapping: [libc::c_ulong; 2],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_counted_until_they_are_removed() {
        // SAFETY: a new private segment of one page, of which only the number is used.
        let id = unsafe { libc::shmget(libc::IPC_PRIVATE, 4096, 0o600) };
        assert!(id >= 0, "{}", io::Error::last_os_error());
        let while_there = segments();
        // SAFETY: removes the segment made above; no structure is read for that.
        let removed = unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        assert_eq!(removed, 0, "{}", io::Error::last_os_error());
        assert!(while_there.unwrap() > 0);
    }
}
