//! The files of sandboxes in the state directory.
//!
//! ```text
//! disks/                          empty disk images to copy; those in use have no name
//! staging/                        a mount point, empty outside of starting sandboxes
//! launchers/<pid>                 launchers at work; one that was killed leaves its mark
//! run/sandboxes/<id>/agent.sock   the agent's listening socket
//! run/sandboxes/<id>/process      "pid start-time uid gid range", written before the agent may run: the first process,
//!                                 the workload's user inside, and the range of ids where there is one
//! run/sandboxes/<id>/bundle/      the description for a runtime, where one encloses the sandbox
//! run/sandboxes/<id>/own-kernel   that runtime has a kernel of its own
//! run/ids/<range>                 ranges that are taken: links to the owner's file
//! run/owners/<cells>              whom ranges belong to: helpers, by what the names of their cells begin with
//! run/hanging/<id>/               sandboxes whose processes hang in the kernel
//! run/trash/                      what is being removed
//! ```
//!
//! Where `run` leads is told in [`crate::run`].

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use belljar_sys::process::ProcessIdentity;
use rustix::fs::{AtFlags, Mode, OFlags, unlinkat};

use crate::failure::{Result, Stage};
use crate::run::{Run, open_directory};
use crate::wire::Failure;

const DIRECTORIES: [&str; 3] = ["disks", "staging", "launchers"];

/// The state directory, as the launcher uses it.
pub(crate) struct Place {
    pub(crate) path: PathBuf,
    pub(crate) ids: OwnedFd,
    sandboxes: OwnedFd,
    run: Run,
    /// Distinguishes this installation's objects from another's on the same host.
    pub(crate) group: String,
}

impl Place {
    pub(crate) fn open(path: PathBuf, directory: OwnedFd, privileged: bool) -> Result<Self> {
        for name in DIRECTORIES {
            match rustix::fs::mkdirat(&directory, name, Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(rustix::io::Errno::EXIST) => {}
                Err(errno) => return Err(Failure::new("state-directory", errno.raw_os_error())),
            }
        }
        let stat = rustix::fs::fstat(&directory).stage("state-directory")?;
        let group = format!("belljar-{:x}-{:x}", stat.st_dev, stat.st_ino);
        let run = Run::open(directory, &path, &group, privileged).stage("run-directory")?;
        Ok(Self {
            ids: open_directory(&run.directory, "ids").stage("run-directory")?,
            sandboxes: open_directory(&run.directory, "sandboxes").stage("run-directory")?,
            run,
            group,
            path,
        })
    }

    /// Makes the directory of a new sandbox.
    pub(crate) fn create(&self, id: &str) -> Result<()> {
        check_id(id)?;
        rustix::fs::mkdirat(&self.sandboxes, id, Mode::from_raw_mode(0o700))
            .stage("sandbox-directory")
    }

    pub(crate) fn open_sandbox(&self, id: &str) -> io::Result<OwnedFd> {
        open_directory(&self.sandboxes, id)
    }

    /// The ids of all sandboxes that have a directory.
    pub(crate) fn sandboxes(&self) -> Vec<String> {
        names(&self.run.path.join("sandboxes"))
    }

    /// The ranges that are taken, and by whom.
    pub(crate) fn ranges(&self) -> Vec<(u32, String)> {
        let directory = self.run.path.join("ids");
        let owner = |name: &String| fs::read_to_string(directory.join(name)).ok();
        names(&directory)
            .into_iter()
            .filter_map(|name| Some((name.parse().ok()?, owner(&name)?)))
            .collect()
    }

    /// Makes the file that ranges of a helper are links to.
    pub(crate) fn owner(&self, cells: &str) -> Result<PathBuf> {
        let path = self.run.path.join("owners").join(cells);
        fs::write(&path, cells).stage("id-range")?;
        Ok(path)
    }

    pub(crate) fn remove_owners(&self, which: impl Fn(&str) -> bool) {
        let owners = self.run.path.join("owners");
        for owner in names(&owners).into_iter().filter(|owner| which(owner)) {
            let _ = fs::remove_file(owners.join(owner));
        }
    }

    /// Marks this launcher as at work.
    pub(crate) fn sign_in(&self) -> io::Result<()> {
        fs::write(self.launchers().join(std::process::id().to_string()), "")
    }

    /// Every trace of this launcher has been removed.
    pub(crate) fn sign_out(&self) {
        self.run.leave();
        let _ = fs::remove_file(self.launchers().join(std::process::id().to_string()));
    }

    /// Takes away the marks of launchers that are gone, once what they left is gone too.
    pub(crate) fn sign_out_the_dead(&self) {
        for pid in names(&self.launchers()) {
            if !Path::new("/proc").join(&pid).exists() {
                let _ = fs::remove_file(self.launchers().join(pid));
            }
        }
    }

    pub(crate) fn staging(&self) -> PathBuf {
        self.path.join("staging")
    }

    fn launchers(&self) -> PathBuf {
        self.path.join("launchers")
    }

    /// The sandboxes that were set aside.
    pub(crate) fn hanging(&self) -> Vec<String> {
        names(&self.run.path.join("hanging"))
    }

    pub(crate) fn is_hanging(&self, id: &str) -> bool {
        self.run.path.join("hanging").join(id).exists()
    }

    pub(crate) fn open_hanging(&self, id: &str) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(rustix::fs::open(self.run.path.join("hanging").join(id), flags, Mode::empty())?)
    }

    pub(crate) fn set_aside(&self, id: &str) {
        let _ = fs::rename(
            self.run.path.join("sandboxes").join(id),
            self.run.path.join("hanging").join(id),
        );
    }

    pub(crate) fn take_back(&self, id: &str) {
        let _ = fs::rename(
            self.run.path.join("hanging").join(id),
            self.run.path.join("sandboxes").join(id),
        );
    }

    /// The ranges that sandboxes have.
    pub(crate) fn ranges_in_use(&self) -> Vec<u32> {
        let here = self.sandboxes().into_iter().filter_map(|id| self.open_sandbox(&id).ok());
        let aside = self.hanging().into_iter().filter_map(|id| self.open_hanging(&id).ok());
        here.chain(aside).filter_map(|sandbox| Identity::read(&sandbox)?.range).collect()
    }

    /// Removes a sandbox's directory, or moves it out of sight if there is more in it than every sandbox has; true if that
    /// is still to be removed. Nothing there is fine.
    pub(crate) fn discard(&self, id: &str) -> bool {
        let Ok(sandbox) = self.open_sandbox(id) else { return false };
        if let Some(Identity { range: Some(range), .. }) = Identity::read(&sandbox) {
            crate::ids::give_back(self.ids.as_fd(), range);
        }
        for name in [AGENT_SOCKET, PROCESS] {
            let _ = unlinkat(&sandbox, name, AtFlags::empty());
        }
        if unlinkat(&self.sandboxes, id, AtFlags::REMOVEDIR).is_ok() {
            return false;
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let trash =
            self.run.path.join("trash").join(format!("{id}-{}-{}", now.tv_sec, now.tv_nsec));
        fs::rename(self.run.path.join("sandboxes").join(id), trash).is_ok()
    }

    /// Removes one thing that was moved out of sight; false if there was none that can be removed.
    pub(crate) fn empty_trash_once(&self) -> bool {
        let trash = self.run.path.join("trash");
        // A directory of sandbox files holds only what the launcher made; nothing in it is followed.
        names(&trash).into_iter().any(|name| fs::remove_dir_all(trash.join(name)).is_ok())
    }
}

/// Ids come from the other side: nothing but lower-case letters and digits ever becomes part of a path.
pub(crate) fn check_id(id: &str) -> Result<()> {
    let plain = id.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
    if plain && (1..=24).contains(&id.len()) {
        Ok(())
    } else {
        Err(Failure::new("sandbox-id", rustix::io::Errno::INVAL.raw_os_error()))
    }
}

pub(crate) fn read_process(sandbox: &OwnedFd) -> Option<ProcessIdentity> {
    ProcessIdentity::from_text(&read(sandbox, PROCESS)?)
}

/// The workload's user and group inside, and the sandbox's range of ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) range: Option<u32>,
}

impl Identity {
    pub(crate) fn read(sandbox: &OwnedFd) -> Option<Self> {
        let text = read(sandbox, PROCESS)?;
        let mut words = text.split_whitespace().skip(2);
        Some(Self {
            uid: words.next()?.parse().ok()?,
            gid: words.next()?.parse().ok()?,
            range: words.next().and_then(|word| word.parse().ok()),
        })
    }

    /// Writes down which process a sandbox's first one is, and who is in it.
    pub(crate) fn record(self, sandbox: &OwnedFd, process: ProcessIdentity) -> io::Result<()> {
        let range = self.range.map(|range| format!(" {range}")).unwrap_or_default();
        write(
            sandbox,
            PROCESS,
            &format!("{} {} {}{range}\n", process.to_text(), self.uid, self.gid),
        )
    }
}

const PROCESS: &str = "process";
pub(crate) const AGENT_SOCKET: &str = "agent.sock";

fn write(sandbox: &OwnedFd, name: &str, text: &str) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC;
    let file = rustix::fs::openat(sandbox, name, flags, Mode::from_raw_mode(0o600))?;
    rustix::io::write(&file, text.as_bytes())?;
    Ok(())
}

fn read(sandbox: &OwnedFd, name: &str) -> Option<String> {
    let file =
        rustix::fs::openat(sandbox, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    let mut buffer = [0u8; 64];
    let length = rustix::io::read(&file, &mut buffer[..]).ok()?;
    Some(std::str::from_utf8(&buffer[..length]).ok()?.to_owned())
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_says_whose_it_is_also_when_its_owner_is_gone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().to_owned();
        let opened = rustix::fs::open(&path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let place = Place::open(path, opened.unwrap(), false).unwrap();
        let owner = place.owner("cell-42-777-1-").unwrap();
        let take = || crate::ids::take(place.ids.as_fd(), &owner, "cell-42-777-1-1").unwrap();
        let (first, second) = (take(), take());
        assert_ne!(first, second);
        place.remove_owners(|owner| owner.starts_with("cell-42-"));
        assert_eq!(names(&directory.path().join("owners")), Vec::<String>::new());
        let mut ranges = place.ranges();
        ranges.sort();
        let whose = "cell-42-777-1-".to_owned();
        let mut expected = [(first, whose.clone()), (second, whose)];
        expected.sort();
        assert_eq!(ranges, expected);
    }
}
