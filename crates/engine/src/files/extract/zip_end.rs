//! The end of a zip archive, which says where its directory is. Read strictly: one end, nothing behind it, nothing
//! between it and the directory.

use super::refused_archive;
use super::spool::Spool;
use super::zip_directory::{u16_at, u32_at, u64_at};
use crate::Result;

const END: &[u8] = b"PK\x05\x06";
const LONG_END: &[u8] = b"PK\x06\x06";
const LOCATOR: &[u8] = b"PK\x06\x07";

const END_SIZE: usize = 22;
const LOCATOR_SIZE: u64 = 20;
const LONG_END_SIZE: u64 = 56;

/// "Look for it in the long form."
const CUT_ENTRIES: u64 = u16::MAX as u64;
const CUT_SIZE: u64 = u32::MAX as u64;

/// The longest comment after the end.
const LONGEST_COMMENT: u64 = u16::MAX as u64;

/// Where the directory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Directory {
    pub(super) entries: u64,
    pub(super) start: u64,
    pub(super) end: u64,
}

pub(super) async fn find_directory(spool: &Spool) -> Result<Directory> {
    let window = spool.size().min(LONGEST_COMMENT + END_SIZE as u64);
    let base = spool.size() - window;
    let tail = spool.read(base, window as usize).await?;
    let position = find_end(&tail)?;
    let end = tail.get(position..).unwrap_or_default();
    let end_offset = base + position as u64;
    let numbers = Numbers {
        disks: [u32::from(u16_at(end, 4)), u32::from(u16_at(end, 6))],
        entries: [u64::from(u16_at(end, 8)), u64::from(u16_at(end, 10))],
        size: u64::from(u32_at(end, 12)),
        start: u64::from(u32_at(end, 16)),
    };
    // Programs that write as they go have the long form too, needed or not.
    match numbers.is_cut() || has_locator(spool, end_offset).await? {
        true => long_directory(spool, end_offset, &numbers).await,
        false => numbers.directory(end_offset),
    }
}

#[derive(Debug)]
struct Numbers {
    disks: [u32; 2],
    entries: [u64; 2],
    size: u64,
    start: u64,
}

impl Numbers {
    /// Whether something is only in the long form.
    fn is_cut(&self) -> bool {
        self.entries[1] == CUT_ENTRIES || self.size == CUT_SIZE || self.start == CUT_SIZE
    }

    /// Whether the long form says the same, as far as the short one says anything.
    fn agrees_with(&self, long: &Self) -> bool {
        let same = |short: u64, cut: u64, long: u64| short == cut || short == long;
        same(self.entries[1], CUT_ENTRIES, long.entries[1])
            && same(self.size, CUT_SIZE, long.size)
            && same(self.start, CUT_SIZE, long.start)
    }

    /// The directory, which ends where the record about it begins.
    fn directory(&self, end: u64) -> Result<Directory> {
        if self.disks != [0, 0] || self.entries[0] != self.entries[1] {
            return Err(refused_archive("is in several parts"));
        }
        if self.start.checked_add(self.size) != Some(end) {
            return Err(refused_archive("has something hidden around its directory"));
        }
        Ok(Directory { entries: self.entries[1], start: self.start, end })
    }
}

async fn has_locator(spool: &Spool, end_offset: u64) -> Result<bool> {
    let Some(offset) = end_offset.checked_sub(LOCATOR_SIZE) else { return Ok(false) };
    Ok(spool.read(offset, LOCATOR.len()).await? == LOCATOR)
}

async fn long_directory(spool: &Spool, end_offset: u64, short: &Numbers) -> Result<Directory> {
    let malformed = || refused_archive("has a malformed end");
    let locator_offset = end_offset.checked_sub(LOCATOR_SIZE).ok_or_else(malformed)?;
    let locator = spool.read(locator_offset, LOCATOR_SIZE as usize).await?;
    let offset = u64_at(&locator, 8);
    if !locator.starts_with(LOCATOR)
        || offset.checked_add(LONG_END_SIZE) != Some(locator_offset)
        || u32_at(&locator, 4) != 0
        || u32_at(&locator, 16) != 1
    {
        return Err(malformed());
    }
    let end = spool.read(offset, LONG_END_SIZE as usize).await?;
    if !end.starts_with(LONG_END) || u64_at(&end, 4) != LONG_END_SIZE - 12 {
        return Err(malformed());
    }
    let numbers = Numbers {
        disks: [u32_at(&end, 16), u32_at(&end, 20)],
        entries: [u64_at(&end, 24), u64_at(&end, 32)],
        size: u64_at(&end, 40),
        start: u64_at(&end, 48),
    };
    if !short.agrees_with(&numbers) {
        return Err(refused_archive("has two ends"));
    }
    numbers.directory(offset)
}

/// The one place from which an end record, with its comment, reaches exactly to the end of the archive.
fn find_end(tail: &[u8]) -> Result<usize> {
    let reaches_end = |position: &usize| {
        let record = tail.get(*position..).unwrap_or_default();
        record.len() >= END_SIZE
            && record.starts_with(END)
            && END_SIZE + usize::from(u16_at(record, 20)) == record.len()
    };
    let mut found = (0..tail.len()).filter(reaches_end);
    match (found.next(), found.next()) {
        (Some(position), None) => Ok(position),
        (None, _) => Err(refused_archive("is not a complete zip archive")),
        (Some(_), Some(_)) => Err(refused_archive("has two ends")),
    }
}
