//! Descriptors that a program was started with.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Mutex;

/// Takes ownership of a descriptor that was open when the program started. Each can be taken once; of the standard
/// three a copy is given, since they belong to everybody.
pub fn take(descriptor: RawFd) -> io::Result<OwnedFd> {
    static TAKEN: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());
    let mut taken = TAKEN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    if descriptor < 0 || taken.contains(&descriptor) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    if descriptor <= 2 {
        // SAFETY: the number is not negative; copying a number that is not open only fails.
        return Ok(rustix::io::fcntl_dupfd_cloexec(
            unsafe { BorrowedFd::borrow_raw(descriptor) },
            3,
        )?);
    }
    // SAFETY: the number is not negative; `fcntl` on a number that is not open only says so.
    rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(descriptor) })?;
    taken.push(descriptor);
    // SAFETY: it is open, is none of the standard three, and was not given out before. That nothing else in this
    // program opened it is the contract of this module: call it first, before anything is opened.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Moves a descriptor to a number at which a program that is started next expects it. The number must be free.
pub fn place(descriptor: OwnedFd, number: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: the number is not negative; `fcntl` on a number that is not open only says so.
    if number < 3 || rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(number) }).is_ok() {
        return Err(io::ErrorKind::AlreadyExists.into());
    }
    // SAFETY: copies one descriptor to a number that is free, as was just seen, in a process whose callers open nothing
    // meanwhile.
    if unsafe { libc::dup3(std::os::fd::AsRawFd::as_raw_fd(&descriptor), number, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: it was made by the line above and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// Marks everything from this number up as close-on-exec.
pub fn close_on_exec_from(first: RawFd) -> io::Result<()> {
    close_between(first, RawFd::MAX, libc::CLOSE_RANGE_CLOEXEC)
}

/// Closes everything from `first` to `last`. Only for a process that goes on to use none of them.
pub(crate) fn close_range(first: RawFd, last: RawFd) -> io::Result<()> {
    close_between(first, last, 0)
}

fn close_between(first: RawFd, last: RawFd, flags: libc::c_uint) -> io::Result<()> {
    // SAFETY: closing descriptors breaks no memory; who may still use them is the callers' documented duty.
    match unsafe { libc::syscall(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
