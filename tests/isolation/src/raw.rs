//! The only place with `unsafe`: system calls that no safe wrapper offers, because they are meant to be refused.
//!
//! Arbitrary calls happen in a *throwaway*: a forked child that shares no memory with the probe, reports one number
//! over a pipe and leaves by `_exit`. A call that kills, corrupts or hangs its process costs only that child, and the
//! probe can report "killed". The probe is single-threaded whenever it forks, so the child may allocate.

#![allow(unsafe_code)]

use std::ffi::CStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

/// After this long a throwaway is killed by its own alarm; every call made in one answers at once or never.
const DEADLINE_SECONDS: libc::c_uint = 10;

/// How work in a throwaway, or a plain operation, ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Returned(i64),
    Failed(i32),
    Killed(i32),
    NotStarted(i32),
}

/// Proof of being in a throwaway.
#[derive(Debug)]
pub struct Throwaway(());

/// Runs `work` in a throwaway. `Err` carries an error number.
pub fn in_child(work: impl FnOnce(&Throwaway) -> Result<i64, i32>) -> Ended {
    let (reader, writer) = match io::pipe() {
        Ok(ends) => ends,
        Err(error) => return Ended::NotStarted(error.raw_os_error().unwrap_or(libc::EIO)),
    };
    let child = spawn(move || {
        // SAFETY: alarm takes no pointer.
        unsafe { libc::alarm(DEADLINE_SECONDS) };
        let (tag, value) = match work(&Throwaway(())) {
            Ok(value) => (0_u8, value),
            Err(number) => (1, i64::from(number)),
        };
        let mut message = [0_u8; 9];
        message[0] = tag;
        message[1..].copy_from_slice(&value.to_le_bytes());
        i32::from((&writer).write_all(&message).is_err())
    });
    let child = match child {
        Ok(child) => child,
        Err(error) => return Ended::NotStarted(error.raw_os_error().unwrap_or(libc::EIO)),
    };
    let mut message = [0_u8; 9];
    let heard = (&reader).read_exact(&mut message).is_ok();
    let status = wait(child);
    let value = i64::from_le_bytes(message[1..].try_into().expect("eight of nine bytes"));
    match (heard, message[0], status) {
        (true, 0, _) => Ended::Returned(value),
        (true, _, _) => Ended::Failed(i32::try_from(value).unwrap_or(libc::EIO)),
        (false, _, Ok(Exit::Signal(signal))) => Ended::Killed(signal),
        (false, _, _) => Ended::NotStarted(libc::ECHILD),
    }
}

/// Makes one call in a throwaway.
#[must_use]
pub fn call(number: libc::c_long, arguments: [usize; 6]) -> Ended {
    in_child(|child| child.call(number, arguments))
}

/// The address of a C string, as an argument of [`Throwaway::call`].
#[must_use]
pub fn text(text: &CStr) -> usize {
    text.as_ptr().expose_provenance()
}

/// The address of a value, as an argument of [`Throwaway::call`].
pub fn place<T>(value: &mut T) -> usize {
    std::ptr::from_mut(value).expose_provenance()
}

impl Throwaway {
    /// Makes a system call by number.
    ///
    /// # Errors
    /// The error number that the kernel answered.
    pub fn call(&self, number: libc::c_long, a: [usize; 6]) -> Result<i64, i32> {
        // SAFETY: a `Throwaway` exists only in a forked child without other threads, which shares no memory with the
        // probe. Pointers among the arguments are live buffers of at least the size the call uses, or invalid on
        // purpose (the kernel answers EFAULT). Should a forbidden call succeed and damage memory, it damages the copy
        // of a process that reports one number and leaves by `_exit`.
        let result = unsafe { libc::syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]) };
        if result == -1 { Err(last_error()) } else { Ok(result) }
    }

    /// Makes a system call through the 32-bit entry, with no arguments but the first.
    ///
    /// # Errors
    /// The error number that the kernel answered.
    #[cfg(target_arch = "x86_64")]
    pub fn call_32bit(&self, number: i32, first: i32) -> Result<i64, i32> {
        let result: i64;
        // SAFETY: the 32-bit entry preserves all registers but rax; rbx, which the compiler may reserve, is saved and
        // restored around it. r8 to r11 are declared clobbered for kernels that zero them. Nothing here is a pointer.
        unsafe {
            std::arch::asm!(
                "push rbx",
                "mov ebx, {first:e}",
                "int 0x80",
                "pop rbx",
                first = in(reg) first,
                inlateout("rax") i64::from(number) => result,
                in("rcx") 0_i64,
                in("rdx") 0_i64,
                in("rsi") 0_i64,
                in("rdi") 0_i64,
                lateout("r8") _,
                lateout("r9") _,
                lateout("r10") _,
                lateout("r11") _,
            );
        }
        // Through this entry the kernel answers a negative 32-bit number.
        let result = i64::from(result as i32);
        if (-4095..0).contains(&result) { Err(-result as i32) } else { Ok(result) }
    }

    /// Ends this process without running anything that belongs to the probe.
    pub fn leave(&self) -> ! {
        // SAFETY: `_exit` takes no pointer and does not return.
        unsafe { libc::_exit(0) }
    }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// Forks a child that runs `work` and ends with its result as exit status.
///
/// Preconditions: the probe has only one thread.
///
/// # Errors
/// When the kernel makes no more processes.
pub fn spawn(work: impl FnOnce() -> i32) -> io::Result<i32> {
    // SAFETY: the probe has one thread, so the child's copy of the memory holds no lock that nobody will release; the
    // child never returns from this function.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            let code = catch_unwind(AssertUnwindSafe(work)).unwrap_or(101);
            // SAFETY: `_exit` takes no pointer and does not return.
            unsafe { libc::_exit(code) }
        }
        child => Ok(child),
    }
}

/// Waits for a child of this process.
///
/// # Errors
/// When there is no such child.
pub fn wait(child: i32) -> io::Result<Exit> {
    let mut status = 0;
    loop {
        // SAFETY: `status` is a live integer that the kernel fills during the call.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } != -1 {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    if libc::WIFSIGNALED(status) {
        Ok(Exit::Signal(libc::WTERMSIG(status)))
    } else {
        Ok(Exit::Code(libc::WEXITSTATUS(status)))
    }
}

/// Waits until a signal that is not ignored arrives, for ever.
pub fn pause_forever() -> ! {
    loop {
        // SAFETY: `pause` takes no pointer.
        unsafe { libc::pause() };
    }
}

/// # Errors
/// The kernel's refusal.
pub fn kill(process: i32, signal: i32) -> io::Result<()> {
    // SAFETY: `kill` takes no pointer.
    check(unsafe { libc::kill(process, signal) })
}

/// # Errors
/// When this process leads a group already.
pub fn become_session_leader() -> io::Result<()> {
    // SAFETY: `setsid` takes no pointer.
    check(unsafe { libc::setsid() })
}

/// Makes this process deaf to a signal.
pub fn ignore_signal(signal: i32) {
    // SAFETY: SIG_IGN is no function, so no handler can run.
    unsafe { libc::signal(signal, libc::SIG_IGN) };
}

/// Closes a descriptor that nothing in this process uses any more.
pub fn close(descriptor: i32) {
    // SAFETY: only daemons call this, for the three standard streams, which no owned descriptor stands for.
    unsafe { libc::close(descriptor) };
}

/// Reserves `length` bytes of disk for a file.
///
/// # Errors
/// The kernel's refusal.
pub fn allocate(file: &File, length: u64) -> io::Result<()> {
    let length =
        libc::off_t::try_from(length).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG))?;
    // SAFETY: the descriptor is open for as long as `file` is borrowed.
    check(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) })
}

/// Bytes and inodes of the file system that holds a path.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    pub free_bytes: u64,
    pub total_bytes: u64,
    pub free_inodes: u64,
    pub total_inodes: u64,
}

/// # Errors
/// When the path does not exist.
pub fn space(path: &CStr) -> io::Result<Space> {
    // SAFETY: all-zero bytes are a valid `statvfs`: it has only integer fields.
    let mut found: libc::statvfs = unsafe { std::mem::zeroed() };
    // SAFETY: the path is NUL-terminated and `found` is live; the kernel fills it during the call.
    check(unsafe { libc::statvfs(path.as_ptr(), &raw mut found) })?;
    Ok(Space {
        free_bytes: found.f_bavail * found.f_frsize,
        total_bytes: found.f_blocks * found.f_frsize,
        free_inodes: found.f_favail,
        total_inodes: found.f_files,
    })
}

/// CPU time that this process, with all its threads, has used.
#[must_use]
pub fn cpu_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is live and the kernel fills it during the call.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Real, effective and saved ids, user then group.
#[must_use]
pub fn identities() -> [u32; 6] {
    let mut ids = [0_u32; 6];
    let [ruid, euid, suid, rgid, egid, sgid] = &mut ids;
    // SAFETY: all six are live integers that the kernel fills during the calls.
    unsafe {
        libc::getresuid(ruid, euid, suid);
        libc::getresgid(rgid, egid, sgid);
    }
    ids
}

/// A new pseudo-terminal: the controlling end and the terminal itself.
///
/// # Errors
/// When there is no `/dev/ptmx` or no more terminals.
pub fn open_terminal() -> io::Result<(OwnedFd, OwnedFd)> {
    let (mut controller, mut terminal) = (-1, -1);
    let (name, settings, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: the two integers are live and filled during the call; the other pointers may be null.
    check(unsafe { libc::openpty(&raw mut controller, &raw mut terminal, name, settings, size) })?;
    // SAFETY: the call succeeded, so both are open descriptors that nobody else owns.
    Ok(unsafe { (OwnedFd::from_raw_fd(controller), OwnedFd::from_raw_fd(terminal)) })
}

/// Reads what is there, waiting at most the given time for the first byte.
///
/// # Errors
/// The kernel's refusal, or `TimedOut`.
pub fn read_within(descriptor: BorrowedFd<'_>, wait: Duration) -> io::Result<Vec<u8>> {
    let mut poll = libc::pollfd { fd: descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let milliseconds = libc::c_int::try_from(wait.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: `poll` is one live element and the kernel fills it during the call.
    match unsafe { libc::poll(&raw mut poll, 1, milliseconds) } {
        0 => return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
        -1 => return Err(io::Error::last_os_error()),
        _ => {}
    }
    let mut buffer = vec![0_u8; 4096];
    // SAFETY: the buffer is live and of the length given.
    let read =
        unsafe { libc::read(descriptor.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len()) };
    let read = usize::try_from(read).map_err(|_| io::Error::last_os_error())?;
    buffer.truncate(read);
    Ok(buffer)
}

fn check(result: i32) -> io::Result<()> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn last_error() -> i32 {
    io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throwaway_reports_success_error_and_death() {
        assert_eq!(in_child(|_| Ok(7)), Ended::Returned(7));
        assert_eq!(in_child(|_| Err(libc::EPERM)), Ended::Failed(libc::EPERM));
        let dies = in_child(|child| {
            let own = child.call(libc::SYS_getpid, [0; 6])? as usize;
            child.call(libc::SYS_kill, [own, libc::SIGSYS as usize, 0, 0, 0, 0])
        });
        assert_eq!(dies, Ended::Killed(libc::SIGSYS));
    }

    #[test]
    fn a_panic_in_a_throwaway_is_not_an_answer() {
        assert_eq!(in_child(|_| panic!("on purpose")), Ended::NotStarted(libc::ECHILD));
    }
}
