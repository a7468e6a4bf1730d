//! Watching a file or a directory for changes, with a bounded number of watches.
//!
//! Paths in changes are relative to what is watched; the watched thing itself is the empty path. When the kernel's queue
//! or the number of watches overflows, the host is told once and has to look for itself.

use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use belljar_protocol::v1::{Change, Done, Watch, change::What, frame::Body};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::fs::{CWD, FileType, OFlags, RawDir, stat};
use rustix::io::Errno;

use super::list::open_directory;
use super::worker::Channel;
use crate::failure::{Problem, Result};
use crate::table::Table;

/// Directories watched for one request.
const MOST_WATCHES: usize = 4096;

const DEEPEST: usize = 64;

const CHANGES: WatchFlags = WatchFlags::CREATE
    .union(WatchFlags::MODIFY)
    .union(WatchFlags::ATTRIB)
    .union(WatchFlags::DELETE)
    .union(WatchFlags::DELETE_SELF)
    .union(WatchFlags::MOVED_FROM)
    .union(WatchFlags::MOVED_TO)
    .union(WatchFlags::MOVE_SELF);

struct Watcher {
    inotify: OwnedFd,
    /// What each watch is called, relative to the top.
    names: Table<i32, Vec<u8>>,
    top: Vec<u8>,
    recursive: bool,
    is_full: bool,
}

pub(super) fn watch(channel: &mut Channel<'_>, request: &Watch) -> Result<Body> {
    let path = request.path.as_slice();
    let failed = |errno| Problem::file("watch", path, errno);
    let is_directory = FileType::from_raw_mode(stat(path).map_err(failed)?.st_mode).is_dir();
    let mut watcher = Watcher {
        inotify: inotify::init(CreateFlags::CLOEXEC).map_err(failed)?,
        names: Table::default(),
        top: path.to_vec(),
        recursive: request.recursive && is_directory,
        is_full: false,
    };
    watcher.add(&[], 0).map_err(failed)?;
    channel.send(Body::Done(Done { size: 0 }))?;
    if watcher.is_full {
        channel.send(overflow())?;
    }
    watcher.report(channel)
}

impl Watcher {
    /// Watches a directory and, if asked for, those below it.
    fn add(&mut self, name: &[u8], depth: usize) -> Result<(), Errno> {
        if self.names.len() >= MOST_WATCHES || depth > DEEPEST {
            self.is_full = true;
            return Ok(());
        }
        let path = self.path(name);
        let mut flags = CHANGES;
        flags.set(WatchFlags::DONT_FOLLOW, !name.is_empty());
        match inotify::add_watch(&self.inotify, path.as_slice(), flags) {
            Ok(watch) => self.names.insert(watch, name.to_vec()),
            Err(Errno::NOSPC) => {
                self.is_full = true;
                return Ok(());
            }
            Err(errno) => return Err(errno),
        }
        if self.recursive {
            for inner in directories(&path)? {
                // One that has gone or is closed to us is not watched.
                let _ = self.add(&join(name, &inner), depth + 1);
            }
        }
        Ok(())
    }

    fn report(&mut self, channel: &mut Channel<'_>) -> Result<Body> {
        let failed = |errno| Problem::file("watch", b"", errno);
        let mut space = [MaybeUninit::uninit(); 4096];
        let descriptor = self.inotify.try_clone().map_err(|_| failed(Errno::MFILE))?;
        let mut reader = Reader::new(descriptor, &mut space);
        let mut last = None;
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::INTR) => continue,
                Err(errno) => return Err(failed(errno)),
            };
            let flags = event.events();
            if flags.contains(ReadFlags::QUEUE_OVERFLOW) {
                channel.send(overflow())?;
                continue;
            }
            if flags.contains(ReadFlags::IGNORED) {
                self.names.remove(event.wd());
                continue;
            }
            let Some(directory) = self.names.get(event.wd()) else { continue };
            let itself = event.file_name().is_none();
            let path = match event.file_name() {
                Some(name) => join(directory, name.to_bytes()),
                None => directory.clone(),
            };
            let Some(what) = what(flags) else { continue };
            // A change to a directory below is already told by the one above it.
            if itself && !path.is_empty() {
                continue;
            }
            if self.recursive
                && flags.contains(ReadFlags::ISDIR)
                && flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO)
            {
                let was_full = self.is_full;
                let _ = self.add(&path, path.split(|&byte| byte == b'/').count());
                // Whatever was made in it before the watch was there went unseen.
                if (self.is_full && !was_full) || !is_empty(&self.path(&path)) {
                    channel.send(overflow())?;
                }
            }
            let change = Change { what: what.into(), path };
            // Writing piece by piece is one change as long as nothing else happens.
            let repeated = what == What::Modified && last.as_ref() == Some(&change);
            if !repeated || reader.is_buffer_empty() {
                channel.send(Body::Change(change.clone()))?;
            }
            last = Some(change);
        }
    }

    fn path(&self, name: &[u8]) -> Vec<u8> {
        if name.is_empty() { self.top.clone() } else { join(&self.top, name) }
    }
}

fn what(flags: ReadFlags) -> Option<What> {
    let table = [
        (ReadFlags::CREATE, What::Created),
        (ReadFlags::MODIFY | ReadFlags::ATTRIB, What::Modified),
        (ReadFlags::DELETE | ReadFlags::DELETE_SELF, What::Removed),
        (ReadFlags::MOVED_FROM | ReadFlags::MOVE_SELF, What::Removed),
        (ReadFlags::MOVED_TO, What::Moved),
    ];
    table.into_iter().find(|(events, _)| flags.intersects(*events)).map(|(_, what)| what)
}

fn overflow() -> Body {
    Body::Change(Change { what: What::Overflow.into(), path: Vec::new() })
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    match directory {
        [] => name.to_vec(),
        _ => [directory, b"/", name].concat(),
    }
}

fn directories(path: &[u8]) -> Result<Vec<Vec<u8>>, Errno> {
    let directory = open_directory(CWD, path, OFlags::NOFOLLOW)?;
    let mut space = vec![MaybeUninit::uninit(); 8192];
    let mut listing = RawDir::new(&directory, &mut space);
    let mut found = Vec::new();
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if entry.file_type().is_dir() && !matches!(name, b"." | b"..") {
            found.push(name.to_vec());
            if found.len() > MOST_WATCHES {
                break;
            }
        }
    }
    Ok(found)
}

fn is_empty(path: &[u8]) -> bool {
    let Ok(directory) = open_directory(CWD, path, OFlags::NOFOLLOW) else { return true };
    let mut space = [MaybeUninit::uninit(); 1024];
    let mut listing = RawDir::new(&directory, &mut space);
    while let Some(Ok(entry)) = listing.next() {
        if !matches!(entry.file_name().to_bytes(), b"." | b"..") {
            return false;
        }
    }
    true
}
