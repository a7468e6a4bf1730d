//! Processes as `/proc` shows them: numbers, parents, memory, time.

use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{Mode, OFlags, RawDir, openat};
use rustix::process::getpid;

use crate::prepare::is_init;

/// One line of the table of processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) pid: i32,
    pub(crate) parent: i32,
    pub(crate) threads: u64,
    pub(crate) resident_bytes: u64,
    /// Its own time and that of the children it waited for.
    pub(crate) user_us: u64,
    pub(crate) system_us: u64,
}

/// All processes below this one. As PID 1 that is everyone else.
pub(crate) fn descendants() -> Vec<Entry> {
    if !is_init() {
        return below_self();
    }
    let mut all = table();
    all.retain(|entry| entry.pid != 1);
    all
}

/// The same without those who came into the sandbox from outside, and are nobody's children here.
pub(crate) fn below_self() -> Vec<Entry> {
    let mut all = table();
    retain_below(&mut all, &[getpid().as_raw_nonzero().get()]);
    all
}

/// Keeps those who descend from one of the given processes.
pub(crate) fn retain_below(all: &mut Vec<Entry>, tops: &[i32]) {
    let mut known = tops.to_vec();
    // Parents may come after their children in the table, so go on until nothing is added.
    loop {
        let before = known.len();
        for entry in &*all {
            if known.contains(&entry.parent) && !known.contains(&entry.pid) {
                known.push(entry.pid);
            }
        }
        if known.len() == before {
            break;
        }
    }
    all.retain(|entry| !tops.contains(&entry.pid) && known.contains(&entry.pid));
}

/// The parent of a process, if that is still there.
pub(crate) fn parent(pid: i32) -> Option<i32> {
    let stat = read(&proc_directory()?, &format!("{pid}/stat"))?;
    parse_stat(&stat).map(|entry| entry.parent)
}

/// The memory that a process would give back if it ended, where this process may look; shared pages count in part.
pub(crate) fn proportional_bytes(pid: i32) -> Option<u64> {
    let text = read(&proc_directory()?, &format!("{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Pss:"))?;
    let kibibytes: u64 = line.split_ascii_whitespace().next()?.parse().ok()?;
    Some(kibibytes * 1024)
}

/// What the kernel calls the program of a process, up to so many bytes: whatever the process chose.
pub(crate) fn short_name(pid: i32, longest: usize) -> Option<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let path = format!("{pid}/comm");
    let file = openat(proc_directory()?, path, flags, Mode::empty()).ok()?;
    let mut buffer = [0; 64];
    let size = rustix::io::read(file, &mut buffer).ok()?;
    let name = buffer.get(..size)?;
    let name = name.strip_suffix(b"\n").unwrap_or(name);
    Some(name.get(..longest).unwrap_or(name).to_vec())
}

fn table() -> Vec<Entry> {
    let mut entries = Vec::new();
    let Some(directory) = proc_directory() else { return entries };
    let mut space = [MaybeUninit::uninit(); 4096];
    let mut listing = RawDir::new(&directory, &mut space);
    while let Some(Ok(entry)) = listing.next() {
        let name = entry.file_name().to_bytes();
        if !name.first().is_some_and(u8::is_ascii_digit) {
            continue;
        }
        let Ok(name) = std::str::from_utf8(name) else { continue };
        // One that has ended since is simply not there.
        if let Some(entry) =
            read(&directory, &format!("{name}/stat")).and_then(|stat| parse_stat(&stat))
        {
            entries.push(entry);
        }
    }
    entries
}

pub(crate) fn proc_directory() -> Option<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open("/proc", flags, Mode::empty()).ok()
}

/// A small file, read at once; names in it may be anything, so what is no text is replaced.
fn read(directory: &OwnedFd, path: &str) -> Option<String> {
    let file = openat(directory, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).ok()?;
    Some(read_small(&file))
}

/// What one read of a kernel's file gives, as text.
pub(crate) fn read_small(file: impl AsFd) -> String {
    let mut buffer = [0; 2048];
    let size = rustix::io::pread(file, &mut buffer, 0).unwrap_or(0);
    String::from_utf8_lossy(buffer.get(..size).unwrap_or_default()).into_owned()
}

fn parse_stat(stat: &str) -> Option<Entry> {
    let pid = stat.split(' ').next()?.parse().ok()?;
    // The name may contain anything, so count from its last closing parenthesis.
    let fields: Vec<&str> = stat.get(stat.rfind(')')? + 2..)?.split_ascii_whitespace().collect();
    let number = |index: usize| fields.get(index)?.parse::<u64>().ok();
    let ticks = |index: usize| Some(number(index)? * (1_000_000 / TICKS_PER_SECOND));
    Some(Entry {
        pid,
        parent: fields.get(1)?.parse().ok()?,
        threads: number(17)?,
        user_us: ticks(11)? + ticks(13)?,
        system_us: ticks(12)? + ticks(14)?,
        resident_bytes: number(21)? * rustix::param::page_size() as u64,
    })
}

/// `USER_HZ`, which is part of the kernel's interface.
const TICKS_PER_SECOND: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_a_line_with_a_hostile_name() {
        let stat = "7 (a) R 9) (x) S 3 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 777 1000 12 1 1\n";
        let page = rustix::param::page_size() as u64;
        assert_eq!(
            parse_stat(stat),
            Some(Entry {
                pid: 7,
                parent: 3,
                threads: 1,
                resident_bytes: 12 * page,
                user_us: 120_000,
                system_us: 140_000,
            })
        );
        for broken in ["", "7", "7 (x", "7 (x)", "7 (x) S", "x (x) S 3 7 7 0 -1"] {
            assert_eq!(parse_stat(broken), None, "{broken}");
        }
    }

    #[test]
    fn finds_a_grandchild() {
        let mut shell = std::process::Command::new("sh")
            .args(["-c", "sleep 100 & read x; kill $!"])
            .stdin(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // The shell forks before it reads; until then look again.
        while !descendants().iter().any(|entry| entry.parent == shell.id() as i32) {
            std::thread::yield_now();
        }
        drop(shell.stdin.take());
        shell.wait().unwrap();
    }
}
