//! Copies of the calling process, and the ends of its children.

use std::ffi::{CStr, CString};
use std::io;
use std::os::fd::RawFd;

use rustix::process::Pid;

use crate::inherited::close_range;

/// What a process and the children it waited for have used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub user_us: u64,
    pub system_us: u64,
    pub peak_rss_bytes: u64,
    /// From and to disks.
    pub read_bytes: u64,
    pub written_bytes: u64,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Code(i32),
    Signal(i32),
}

/// Forks; the child keeps only the given descriptors besides 0, 1 and 2, runs `body` and ends.
///
/// Refuses in a process with more than one thread, where the copy could find a lock held for ever by a thread that
/// was not copied. `body` must use no other descriptor; the copies of their owners are never dropped in the child,
/// because it ends inside this function even when `body` panics.
pub fn fork(kept: &[RawFd], body: impl FnOnce(&Forked)) -> io::Result<Pid> {
    require_single_thread()?;
    // SAFETY: this process has only the calling thread (checked above, and no other thread exists that could have
    // started one since), so the copy's memory is as consistent as the caller's.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let forked = Forked(());
            if forked.keep_only(kept).is_ok() {
                body(&forked);
            }
            exit(0)
        }
        pid => Ok(Pid::from_raw(pid).expect("fork gives a positive number to the parent")),
    }
}

/// Proof of being in a forked copy, and its end: it ends the process when it is dropped, also by a panic, before the
/// parent's frames are unwound in the copy.
#[derive(Debug)]
pub struct Forked(());

/// The exit code of a child whose body panicked; the same as Rust gives to a panicking program.
const PANICKED: i32 = 101;

impl Forked {
    /// Becomes another program, with no signal blocked and the environment as it is; tells why that did not work.
    pub fn execute(&self, program: &CStr, arguments: &[CString]) -> io::Error {
        let mut pointers: Vec<*const libc::c_char> =
            arguments.iter().map(|argument| argument.as_ptr()).collect();
        pointers.push(std::ptr::null());
        // SAFETY: the set is initialised by the first call before the second reads it; the strings and the list of
        // pointers, which ends with null, live until the kernel has copied them or the call has failed.
        unsafe {
            let mut none = std::mem::MaybeUninit::uninit();
            libc::sigemptyset(none.as_mut_ptr());
            libc::sigprocmask(libc::SIG_SETMASK, none.as_ptr(), std::ptr::null_mut());
            libc::execv(program.as_ptr(), pointers.as_ptr());
        }
        io::Error::last_os_error()
    }

    /// Closes all descriptors but 0, 1, 2 and these. The owners of the others, which live in the parent's frames, are
    /// never used or dropped here.
    pub fn keep_only(&self, kept: &[RawFd]) -> io::Result<()> {
        let mut first = 3;
        while let Some(next) = kept.iter().copied().filter(|kept| *kept >= first).min() {
            if next > first {
                close_range(first, next - 1)?;
            }
            first = next + 1;
        }
        close_range(first, RawFd::MAX)
    }
}

impl Drop for Forked {
    fn drop(&mut self) {
        exit(PANICKED)
    }
}

/// Ends the calling process at once: no destructors, no handlers of the copied parent.
pub fn exit(code: i32) -> ! {
    // SAFETY: ends the process; nothing runs afterwards.
    unsafe { libc::_exit(code) }
}

/// Takes the status of any child that has ended; `None` if none has, or if there are no children.
pub fn reap() -> Option<(Pid, Ended, Usage)> {
    loop {
        let mut status = 0;
        // SAFETY: all zeroes is a valid `rusage`, a structure of integers.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        // SAFETY: both pointers lead to live values of the types that the call writes.
        let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG, &mut usage) };
        if pid < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted {
            continue;
        }
        let ended = if libc::WIFSIGNALED(status) {
            Ended::Signal(libc::WTERMSIG(status))
        } else {
            Ended::Code(libc::WEXITSTATUS(status))
        };
        return (pid > 0)
            .then(|| Pid::from_raw(pid))
            .flatten()
            .map(|pid| (pid, ended, Usage::from_raw(&usage)));
    }
}

/// Whether the calling process has any child, running or not yet waited for.
#[must_use]
pub fn has_children() -> bool {
    // SAFETY: all zeroes is a valid `siginfo_t`, a structure of integers and pointers that are not followed.
    let mut information: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the pointer leads to a live value of the type that the call writes.
    unsafe { libc::waitid(libc::P_ALL, 0, &mut information, options) == 0 }
}

/// What the children that were waited for have used, and theirs.
#[must_use]
pub fn usage_of_children() -> Usage {
    // SAFETY: all zeroes is a valid `rusage`, a structure of integers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer leads to a live value of the type that the call writes.
    unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, &mut usage) };
    Usage::from_raw(&usage)
}

impl Usage {
    fn from_raw(usage: &libc::rusage) -> Self {
        let micros = |time: libc::timeval| {
            u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
                + u64::try_from(time.tv_usec).unwrap_or(0)
        };
        Self {
            user_us: micros(usage.ru_utime),
            system_us: micros(usage.ru_stime),
            peak_rss_bytes: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024,
            // Counted in blocks of this size, whatever the file system's are.
            read_bytes: u64::try_from(usage.ru_inblock).unwrap_or(0) * 512,
            written_bytes: u64::try_from(usage.ru_oublock).unwrap_or(0) * 512,
        }
    }
}

fn require_single_thread() -> io::Result<()> {
    // The link count of the directory of threads is two more than the number of threads.
    let threads = rustix::fs::stat(c"/proc/self/task")?.st_nlink;
    if threads > 3 {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "more than one thread"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_among_threads() {
        // The test harness runs each test in a thread of its own.
        let error = fork(&[], |_| ()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::Unsupported);
    }
}
