//! A cgroup v2 directory per process: membership is inherited and cannot be left, one write kills all.
//!
//! Making one takes longer than starting a program, so a few that have become empty are kept for the next.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use belljar_sys::signals;
use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, unlinkat};
use rustix::process::Pid;

use crate::poller::{EventFlags, Poller, Token, Watched};
use crate::procfs::read_small;

/// Makes cgroups below one directory.
#[derive(Debug)]
pub(crate) struct Cgroups {
    parent: OwnedFd,
    poller: Poller,
    spare: Vec<Cgroup>,
    made: u32,
}

/// A cgroup for the tree of one process.
#[derive(Debug)]
pub(crate) struct Cgroup {
    pub(crate) number: u32,
    directory: OwnedFd,
    /// `cgroup.events`, which tells whether anyone is in it.
    events: Watched,
    /// Newer kernels kill whoever is later started right in a cgroup that was ever told to kill.
    killed: Cell<bool>,
}

/// How many empty cgroups are kept: as many as commands that often run at once. There are no more than were ever in use
/// together, so a sandbox that runs one after the other has one.
const SPARE: usize = 16;

impl Cgroups {
    /// Makes the first one, which shows that it can be done.
    pub(crate) fn new(parent: OwnedFd, poller: &Poller) -> io::Result<Self> {
        let mut cgroups = Self { parent, poller: poller.clone(), spare: Vec::new(), made: 0 };
        let first = cgroups.make()?;
        cgroups.spare.push(first);
        Ok(cgroups)
    }

    pub(crate) fn take(&mut self) -> io::Result<Cgroup> {
        match self.spare.pop() {
            Some(cgroup) => Ok(cgroup),
            None => self.make(),
        }
    }

    /// Takes back one that is empty.
    pub(crate) fn give_back(&mut self, mut cgroup: Cgroup) {
        let reusable = self.spare.len() < SPARE && !cgroup.killed.get();
        if reusable && cgroup.events.set_interest(EventFlags::empty()).is_ok() {
            self.spare.push(cgroup);
        } else {
            let _ = unlinkat(&self.parent, name(cgroup.number), AtFlags::REMOVEDIR);
        }
    }

    /// The time that everything here has used, ourselves included, in microseconds: user and system.
    pub(crate) fn time(&self) -> Option<(u64, u64)> {
        let stat = read(&self.parent, "cpu.stat").ok()?;
        let value = |key: &str| {
            stat.lines().find_map(|line| line.strip_prefix(key)?.trim().parse::<u64>().ok())
        };
        Some((value("user_usec ")?, value("system_usec ")?))
    }

    fn make(&mut self) -> io::Result<Cgroup> {
        loop {
            self.made += 1;
            let number = self.made;
            match mkdirat(&self.parent, name(number), Mode::from_raw_mode(0o755)) {
                Ok(()) => {}
                Err(rustix::io::Errno::EXIST) => continue,
                Err(error) => return Err(error.into()),
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            let directory = openat(&self.parent, name(number), flags, Mode::empty())?;
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let events = openat(&directory, "cgroup.events", flags, Mode::empty())?;
            let events = self.poller.own(events, Token::Tree(number));
            return Ok(Cgroup { number, directory, events, killed: Cell::new(false) });
        }
    }
}

impl Cgroup {
    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// Kills everyone in it, also those who are being born.
    pub(crate) fn kill(&self) -> io::Result<()> {
        self.killed.set(true);
        match write(&self.directory, "cgroup.kill", b"1") {
            Err(error) if error.kind() == io::ErrorKind::NotFound => self.kill_one_by_one(),
            other => other,
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        read_small(&self.events).lines().any(|line| line == "populated 0")
    }

    /// Has the loop told when the last member ends.
    pub(crate) fn wait_until_empty(&mut self) -> io::Result<()> {
        Ok(self.events.set_interest(EventFlags::PRI)?)
    }

    /// For kernels before 5.14: freeze, so that nobody forks, then kill whom the list names.
    fn kill_one_by_one(&self) -> io::Result<()> {
        write(&self.directory, "cgroup.freeze", b"1")?;
        // A read gives as many as fit; those who die leave room for the others.
        for _ in 0..PASSES {
            let members = read(&self.directory, "cgroup.procs")?;
            for member in members.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)) {
                let _ = signals::send(member, KILL);
            }
            if members.is_empty() {
                break;
            }
        }
        write(&self.directory, "cgroup.freeze", b"0")
    }
}

/// Looks at the list of members; some of them may take their time to die.
const PASSES: usize = 64;

const KILL: i32 = rustix::process::Signal::KILL.as_raw();

fn name(number: u32) -> String {
    format!("p{number}")
}

fn write(directory: &OwnedFd, file: &str, content: &[u8]) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(directory, file, flags, Mode::empty())?;
    rustix::io::write(&file, content)?;
    Ok(())
}

fn read(directory: &OwnedFd, file: &str) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    Ok(read_small(openat(directory, file, flags, Mode::empty())?))
}
