//! The files of the log: `audit.jsonl`, and older ones as `audit.1.jsonl` (the newest of them) and so on.
//!
//! Several processes may write to the same log: whoever appends holds a lock on `audit.lock` meanwhile, and continues
//! the chain from the last whole line that it finds. A line that was cut off by a crash is removed by the next writer.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

use super::record::{MAX_LINE, NO_HASH, Timed, decode, encode};

/// A file that has grown to this size is set aside.
pub(super) const MAX_FILE: u64 = 8 << 20;

/// Files set aside; the oldest goes when one more comes. With the current one, 256 MiB.
pub(super) const MAX_OLD: u32 = 31;

/// Where the files are.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) directory: PathBuf,
    /// Smaller in tests.
    pub(super) max_file: u64,
    pub(super) max_old: u32,
}

impl Place {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), max_file: MAX_FILE, max_old: MAX_OLD }
    }

    pub(super) fn current(&self) -> PathBuf {
        self.directory.join("audit.jsonl")
    }

    fn old(&self, number: u32) -> PathBuf {
        match number {
            0 => self.current(),
            number => self.directory.join(format!("audit.{number}.jsonl")),
        }
    }

    /// Keeps other writers out until dropped.
    fn lock(&self) -> io::Result<File> {
        let path = self.directory.join("audit.lock");
        let mut options = OpenOptions::new();
        let lock = options.create(true).truncate(false).write(true).mode(0o600).open(path)?;
        loop {
            match flock(&lock, FlockOperation::LockExclusive) {
                Ok(()) => return Ok(lock),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// All files with their lengths at one moment, oldest first.
    pub(super) fn snapshot(&self) -> io::Result<Vec<Part>> {
        if !self.directory.try_exists()? {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let mut parts = Vec::new();
        for number in (0..=self.max_old).rev() {
            let path = self.old(number);
            match File::open(&path) {
                Ok(file) => {
                    let metadata = file.metadata()?;
                    parts.push(Part { length: metadata.len(), inode: metadata.ino(), path, file });
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(parts)
    }

    /// Sets the current file aside. Interrupted at any point, all files are still there in their order.
    fn rotate(&self) -> io::Result<()> {
        let exists = |number: &u32| self.old(*number).try_exists().unwrap_or(true);
        let free = (1..=self.max_old).find(|number| !exists(number)).unwrap_or(self.max_old);
        for number in (0..free).rev() {
            std::fs::rename(self.old(number), self.old(number + 1))?;
        }
        Ok(())
    }
}

/// One file of the log, as it was when it was looked at.
#[derive(Debug)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) file: File,
    pub(super) length: u64,
    pub(super) inode: u64,
}

/// The end of the chain, and of the file it is in.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Tip {
    seq: u64,
    hash: String,
    inode: u64,
    length: u64,
}

/// Appends to the log.
#[derive(Debug)]
pub(super) struct Appender {
    place: Place,
    /// Where this writer left off; another one may have gone on.
    tip: Option<Tip>,
    /// Written to since it was last made durable.
    dirty: Option<File>,
}

impl Appender {
    pub(super) fn new(place: Place) -> Self {
        Self { place, tip: None, dirty: None }
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty.is_some()
    }

    /// Appends all of it, or nothing.
    pub(super) fn append(&mut self, batch: &[Timed]) -> io::Result<()> {
        let _lock = self.place.lock()?;
        let mut file = open(&self.place.current())?;
        if file.metadata()?.len() >= self.place.max_file {
            file.sync_data()?;
            self.tip = Some(self.tip_of(&mut file)?);
            self.place.rotate()?;
            file = open(&self.place.current())?;
        }
        let tip = self.tip_of(&mut file)?;
        let (mut seq, mut hash, mut bytes) = (tip.seq, tip.hash, Vec::new());
        for timed in batch {
            seq += 1;
            hash = encode(timed, seq, &hash, &mut bytes);
        }
        if let Err(error) = file.write_all(&bytes) {
            self.tip = None;
            // What has got there is no whole batch. If this fails too, the next writer removes what is no whole line.
            let _ = file.set_len(tip.length);
            return Err(error);
        }
        let length = tip.length + bytes.len() as u64;
        self.tip = Some(Tip { seq, hash, inode: tip.inode, length });
        self.dirty = Some(file);
        Ok(())
    }

    /// Makes what was written survive a loss of power.
    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.dirty.take().map_or(Ok(()), |file| file.sync_data())
    }

    /// The end of the chain, with `file` being the current one and cut off after its last whole line.
    fn tip_of(&self, file: &mut File) -> io::Result<Tip> {
        let metadata = file.metadata()?;
        let (inode, length) = (metadata.ino(), metadata.len());
        if let Some(tip) = &self.tip
            && tip.inode == inode
            && tip.length == length
        {
            return Ok(tip.clone());
        }
        let (end, last) = last_record(file, length)?;
        if end != length {
            file.set_len(end)?;
        }
        let (seq, hash) = match last {
            Some(last) => last,
            None => self.last_of_old()?.unwrap_or_else(|| (0, NO_HASH.to_owned())),
        };
        Ok(Tip { seq, hash, inode, length: end })
    }

    fn last_of_old(&self) -> io::Result<Option<(u64, String)>> {
        for number in 1..=self.place.max_old {
            match File::open(self.place.old(number)) {
                Ok(mut file) => {
                    let length = file.metadata()?.len();
                    if let (_, Some(last)) = last_record(&mut file, length)? {
                        return Ok(Some(last));
                    }
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }
}

fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)
}

/// Where the last whole line ends, and number and hash of the last line that is a record.
fn last_record(file: &mut File, length: u64) -> io::Result<(u64, Option<(u64, String)>)> {
    let start = length.saturating_sub(2 * MAX_LINE as u64);
    let mut bytes = Vec::new();
    file.seek(SeekFrom::Start(start))?;
    file.take(length - start).read_to_end(&mut bytes)?;
    let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let mut lines =
        bytes[..whole].split(|byte| *byte == b'\n').rev().filter(|line| !line.is_empty());
    let last = lines.find_map(|line| decode(line).ok());
    // Without any newline in sight nothing of it was written by us: it stays, for whoever checks.
    let end = if whole == 0 && start > 0 { length } else { start + whole as u64 };
    Ok((end, last.map(|record| (record.seq, record.hash))))
}

/// Reads whole lines of a part, from `offset` on.
#[derive(Debug)]
pub(super) struct Lines {
    file: File,
    offset: u64,
    limit: u64,
    buffer: Vec<u8>,
    /// Bytes of `buffer` that were given out.
    used: usize,
}

impl Lines {
    pub(super) fn new(file: File, offset: u64, limit: u64) -> Self {
        Self { file, offset, limit, buffer: Vec::new(), used: 0 }
    }

    /// Reads on where more has been written meanwhile.
    pub(super) fn extend_to(&mut self, limit: u64) {
        self.limit = limit;
    }

    pub(super) fn inode(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.ino())
    }

    /// The next line; `None` where there is no whole one. A line that is too long comes cut off.
    pub(super) fn next_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let rest = &self.buffer[self.used..];
            if let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
                let line = rest[..at].to_vec();
                self.used += at + 1;
                return Ok(Some(line));
            }
            if rest.len() > MAX_LINE {
                let line = rest.to_vec();
                self.used = self.buffer.len();
                return Ok(Some(line));
            }
            self.buffer.drain(..self.used);
            self.used = 0;
            let held = self.buffer.len();
            let more = (self.limit - self.offset).min(64 << 10) as usize;
            self.buffer.resize(held + more, 0);
            let read = match more {
                0 => 0,
                _ => self.file.read_at(&mut self.buffer[held..], self.offset)?,
            };
            self.buffer.truncate(held + read);
            self.offset += read as u64;
            if read == 0 {
                // Half a line may be removed by a writer, so it is read again.
                self.offset -= self.buffer.len() as u64;
                self.buffer.clear();
                return Ok(None);
            }
        }
    }
}
