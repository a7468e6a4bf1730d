//! Processes that are found again: by number and start time, held by descriptor.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{
    Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid,
};

/// How many descriptors this process may have open now.
#[must_use]
pub fn descriptor_limit() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// A process number together with the time that process started, which makes it unique until the next boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessIdentity {
    pub pid: i32,
    pub start_time: u64,
}

impl ProcessIdentity {
    /// The identity of a process that exists now.
    pub fn of(pid: i32) -> io::Result<Self> {
        // One read of a fixed size: this is on the way of every start, and the kernel gives the line in one piece.
        let mut buffer = [0; 1024];
        let length = File::open(format!("/proc/{pid}/stat"))?.read(&mut buffer)?;
        let start_time = start_time(&buffer[..length]).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { pid, start_time })
    }

    /// A descriptor of the process, if it is still this one and has not ended.
    #[must_use]
    pub fn open(&self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(self.pid)?;
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        // Checked after opening: from here on the number cannot be given to another process behind our back.
        let stat = std::fs::read(format!("/proc/{}/stat", self.pid)).ok()?;
        let same = start_time(&stat) == Some(self.start_time);
        (same && !is_zombie(&stat)).then_some(descriptor)
    }

    #[must_use]
    pub fn to_text(&self) -> String {
        format!("{} {}", self.pid, self.start_time)
    }

    /// Reads the first two words; more may follow.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let mut words = text.split_whitespace();
        Some(Self { pid: words.next()?.parse().ok()?, start_time: words.next()?.parse().ok()? })
    }
}

/// Which side of a fork this is.
#[derive(Debug)]
pub enum Forked {
    Parent { pid: i32, pidfd: OwnedFd },
    Child,
}

/// Copies the calling process. The copy is killed when its parent ends.
///
/// # Errors
/// Refused while the process has more than one thread: the copy would have one, and locks that the others held.
pub fn fork() -> io::Result<Forked> {
    let stat = std::fs::read("/proc/self/stat")?;
    if field(&stat, 17) != Some(1) {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let parent = rustix::process::getpid();
    // SAFETY: there is one thread, so the copy holds no lock that nobody can release and sees no half-changed state.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The parent may have ended before the line above; then nobody would ever tell us.
            if rustix::process::getppid() != Some(parent) {
                std::process::exit(0);
            }
            Ok(Forked::Child)
        }
        pid => {
            let known = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
            Ok(Forked::Parent { pid, pidfd: pidfd_open(known, PidfdFlags::empty())? })
        }
    }
}

pub fn kill(descriptor: impl AsFd) -> io::Result<()> {
    match pidfd_send_signal(descriptor, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Waits for the end of a child and takes its exit status.
pub fn wait(descriptor: BorrowedFd<'_>) {
    while let Err(rustix::io::Errno::INTR) =
        waitid(WaitId::PidFd(descriptor), WaitIdOptions::EXITED)
    {}
}

/// Takes the exit status of a child, so that it does not stay behind as a zombie. Not a child: nothing to do.
pub fn reap(descriptor: BorrowedFd<'_>) {
    let _ = waitid(WaitId::PidFd(descriptor), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
}

/// Kills everything below a process, again and again until nothing is left or `rounds` are over. Certain only while
/// the process adopts its orphans (a subreaper) and is not itself told to start more.
pub fn kill_descendants(pid: i32, rounds: usize) {
    for _ in 0..rounds {
        let below = descendants(pid);
        if below.is_empty() {
            return;
        }
        for pid in below.into_iter().filter_map(Pid::from_raw) {
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
    }
}

fn descendants(pid: i32) -> Vec<i32> {
    let mut found = Vec::new();
    let mut unseen = vec![pid];
    while let Some(pid) = unseen.pop() {
        let children =
            std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
        for child in children.split_whitespace().filter_map(|text| text.parse().ok()) {
            if !found.contains(&child) {
                found.push(child);
                unseen.push(child);
            }
        }
    }
    found
}

fn start_time(stat: &[u8]) -> Option<u64> {
    field(stat, 19)
}

/// A numeric field of a `stat` file, counted from the one after the command name.
fn field(stat: &[u8], index: usize) -> Option<u64> {
    // The command name may contain anything, so count from its last closing parenthesis.
    let after = &stat[stat.iter().rposition(|&byte| byte == b')')? + 1..];
    std::str::from_utf8(after).ok()?.split_whitespace().nth(index)?.parse().ok()
}

fn is_zombie(stat: &[u8]) -> bool {
    stat.iter()
        .rposition(|&byte| byte == b')')
        .and_then(|end| stat.get(end + 2))
        .is_some_and(|state| matches!(state, b'Z' | b'X'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_survives_text_and_finds_only_itself() {
        let me = ProcessIdentity::of(std::process::id() as i32).unwrap();
        assert_eq!(ProcessIdentity::from_text(&me.to_text()), Some(me));
        assert!(me.open().is_some());
        assert!(ProcessIdentity { start_time: me.start_time + 1, ..me }.open().is_none());
    }

    #[test]
    fn a_name_full_of_parentheses_does_not_confuse() {
        let stat = b"42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1 1\n";
        assert_eq!(start_time(stat), Some(777));
        assert!(!is_zombie(stat));
        assert!(is_zombie(b"42 (Z)) Z 1"));
    }
}
