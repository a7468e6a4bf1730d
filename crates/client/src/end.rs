//! Waiting for the end of a server's process.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// A process that was alive when this was made, whatever its number is used for later.
#[derive(Debug)]
pub struct Ending {
    process: OwnedFd,
}

impl Ending {
    /// `None` where there is no such process.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        Some(Self { process: pidfd_open(pid, PidfdFlags::empty()).ok()? })
    }

    /// Whether it ended within `time`.
    pub async fn within(self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let wait = move || loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).ok();
            let mut watched = [PollFd::new(&self.process, PollFlags::IN)];
            match poll(&mut watched, left.as_ref()) {
                Err(Errno::INTR) => {}
                result => return result.is_ok_and(|ready| ready > 0),
            }
        };
        tokio::task::spawn_blocking(wait).await.unwrap_or(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[tokio::test]
    async fn an_end_is_noticed_and_so_is_its_absence() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let short = Duration::from_millis(20);
        assert!(!Ending::of(child.id()).unwrap().within(short).await);
        let ending = Ending::of(child.id()).unwrap();
        drop(child.stdin.take());
        assert!(ending.within(Duration::from_secs(10)).await);
        child.wait().unwrap();
    }
}
