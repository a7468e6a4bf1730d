//! Signals as something to read, and dispositions as a new program should find them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

use rustix::process::{Pid, Signal};

/// Blocks every signal that can be blocked and delivers some of them through a descriptor.
#[derive(Debug)]
pub struct SignalDescriptor(OwnedFd);

impl SignalDescriptor {
    /// Blocks all signals for the calling thread; `signals` become readable here. The others stay pending, which
    /// turns a write to a closed pipe into a plain error.
    pub fn block_all(signals: &[Signal]) -> io::Result<Self> {
        // SAFETY: all zeroes is a valid `sigset_t`, and `sigfillset` initialises it anyway.
        let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
        let mut chosen = all;
        // SAFETY: the pointers lead to live sets; the numbers come from the type of valid signals.
        unsafe {
            libc::sigfillset(&mut all);
            libc::sigemptyset(&mut chosen);
            for signal in signals {
                libc::sigaddset(&mut chosen, signal.as_raw());
            }
            if libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut()) != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        // SAFETY: the set is initialised and lives through the call, which copies it.
        let descriptor =
            unsafe { libc::signalfd(-1, &chosen, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor; nobody else owns it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// The next signal that has arrived.
    pub fn next(&self) -> Option<Signal> {
        let mut information = [0u8; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut information) {
            Ok(size) if size == information.len() => {
                let number = information.first_chunk().map(|&bytes| u32::from_ne_bytes(bytes))?;
                Signal::from_named_raw(i32::try_from(number).ok()?)
            }
            _ => None,
        }
    }
}

impl AsFd for SignalDescriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Gives every signal its default disposition, so that programs started from here inherit nothing ignored.
pub fn reset_dispositions() {
    // `struct sigaction` of the kernel, all zeroes: SIG_DFL, no flags, no restorer, an empty mask.
    let default = [0u64; 4];
    for signal in 1..=LAST_SIGNAL {
        // Asked of the kernel itself, because the C library does not let go of the signals it keeps to itself.
        // SAFETY: the array is at least as long as the kernel's structure and lives through the call; SIG_DFL runs
        // no code of this process. The two signals whose disposition cannot be changed are refused.
        unsafe {
            let none = std::ptr::null::<u64>();
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), none, 8usize);
        }
    }
}

/// Whether this process ignores a signal, as one that `nohup` started ignores HUP.
#[must_use]
pub fn is_ignored(signal: Signal) -> bool {
    // SAFETY: all zeroes is a valid `sigaction`, which the call fills in; nothing is changed where none is given.
    unsafe {
        let mut found: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal.as_raw(), std::ptr::null(), &mut found) == 0
            && found.sa_sigaction == libc::SIG_IGN
    }
}

/// `_NSIG`.
const LAST_SIGNAL: i32 = 64;

/// Sends a signal by number, real-time signals included, to a process.
pub fn send(pid: Pid, number: i32) -> io::Result<()> {
    kill(pid.as_raw_nonzero().get(), number)
}

/// Sends a signal by number, real-time signals included, to a process group.
pub fn send_to_group(group: Pid, number: i32) -> io::Result<()> {
    kill(-group.as_raw_nonzero().get(), number)
}

/// Sends a signal by number to everyone else in this process's PID namespace, at once; only from its first process, so that
/// it is certain which namespace that is.
pub fn send_to_all(number: i32) -> io::Result<()> {
    if !rustix::process::getpid().is_init() {
        return Err(io::Error::from_raw_os_error(libc::EPERM));
    }
    kill(-1, number)
}

fn kill(target: i32, number: i32) -> io::Result<()> {
    if !(1..=LAST_SIGNAL).contains(&number) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: takes two numbers; a process that is not there or not ours is an error.
    match unsafe { libc::kill(target, number) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
