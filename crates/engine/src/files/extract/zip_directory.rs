//! Entries of a zip archive as its directory has them, checked against their own headers.

use super::names::EntryKind;
use super::refused;
use super::spool::Spool;
use super::zip_end::Directory;
use crate::Result;
use crate::files::extract::refused_archive;

const ENTRY: &[u8] = b"PK\x01\x02";
const LOCAL: &[u8] = b"PK\x03\x04";
const ENTRY_SIZE: usize = 46;
const LOCAL_SIZE: usize = 30;

/// Encrypted, patched, strongly encrypted, masked.
const UNREADABLE: u16 = 1 | 1 << 5 | 1 << 6 | 1 << 13;
const SIZES_FOLLOW: u16 = 1 << 3;

/// Extra fields that matter: long sizes, and another form of the name.
const LONG_SIZES: u16 = 1;
const UNICODE_NAME: u16 = 0x7075;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Method {
    Stored,
    Deflated,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct ZipEntry {
    pub(super) name: Vec<u8>,
    pub(super) kind: EntryKind,
    pub(super) mode: u32,
    pub(super) method: Method,
    pub(super) crc: u32,
    pub(super) packed: u64,
    pub(super) size: u64,
    /// Where its contents begin.
    pub(super) contents: u64,
}

/// Goes through a directory, entry by entry, in the order in which contents lie in the archive.
#[derive(Debug)]
pub(super) struct Entries<'a> {
    spool: &'a Spool,
    directory: Directory,
    offset: u64,
    left: u64,
    /// Where the contents before end: whoever lets entries overlap wants to be extracted more often than stored.
    occupied: u64,
}

impl<'a> Entries<'a> {
    pub(super) fn new(spool: &'a Spool, directory: Directory) -> Self {
        Self { spool, directory, offset: directory.start, left: directory.entries, occupied: 0 }
    }

    pub(super) async fn next(&mut self) -> Result<Option<ZipEntry>> {
        if self.left == 0 {
            return match self.offset == self.directory.end {
                true => Ok(None),
                false => Err(refused_archive("has more entries than it says")),
            };
        }
        self.left -= 1;
        let fixed = self.take(ENTRY_SIZE).await?;
        if !fixed.starts_with(ENTRY) {
            return Err(refused_archive("has a malformed directory"));
        }
        let lengths = [28, 30, 32].map(|at| usize::from(u16_at(&fixed, at)));
        let variable = self.take(lengths.iter().sum()).await?;
        let (name, rest) = variable.split_at(lengths[0]);
        let extra = rest.get(..lengths[1]).unwrap_or_default();
        let (mut entry, header, flags) =
            parse(&fixed, name, extra).map_err(|why| refused(name, why))?;
        self.locate(&mut entry, header, flags).await?;
        Ok(Some(entry))
    }

    async fn take(&mut self, length: usize) -> Result<Vec<u8>> {
        let end = self.offset + length as u64;
        if end > self.directory.end {
            return Err(refused_archive("has a malformed directory"));
        }
        let bytes = self.spool.read(self.offset, length).await?;
        self.offset = end;
        Ok(bytes)
    }

    /// Finds an entry's contents behind its own header, which must say the same.
    async fn locate(&mut self, entry: &mut ZipEntry, header: u64, flags: u16) -> Result<()> {
        let why = |why| refused(&entry.name, why);
        if header < self.occupied {
            return Err(why("overlaps another entry, or is out of order"));
        }
        let fixed = self.spool.read(header, LOCAL_SIZE).await?;
        let name_length = usize::from(u16_at(&fixed, 26));
        let extra_length = usize::from(u16_at(&fixed, 28));
        let after = header + LOCAL_SIZE as u64;
        let variable = self.spool.read(after, name_length + extra_length).await?;
        let (name, extra) = variable.split_at(name_length);
        if !fixed.starts_with(LOCAL)
            || name != entry.name
            || u16_at(&fixed, 6) != flags
            || method(u16_at(&fixed, 8)) != Some(entry.method)
        {
            return Err(why("has two headers that differ"));
        }
        let mut long = LongSizes::find(extra, name).map_err(why)?;
        let size = long.complete(u32_at(&fixed, 22)).map_err(why)?;
        let packed = long.complete(u32_at(&fixed, 18)).map_err(why)?;
        let told = (u32_at(&fixed, 14), packed, size);
        let follows = flags & SIZES_FOLLOW != 0;
        if told != (entry.crc, entry.packed, entry.size) && !(follows && told == (0, 0, 0)) {
            return Err(why("has two headers that differ"));
        }
        entry.contents = after + variable.len() as u64;
        self.occupied = entry.contents.saturating_add(entry.packed);
        match self.occupied > self.directory.start {
            true => Err(why("overlaps the directory")),
            false => Ok(()),
        }
    }
}

/// An entry of the directory, where its own header is, and its flags.
fn parse(fixed: &[u8], name: &[u8], extra: &[u8]) -> Result<(ZipEntry, u64, u16), &'static str> {
    let flags = u16_at(fixed, 8);
    if flags & UNREADABLE != 0 {
        return Err("is encrypted");
    }
    let method = method(u16_at(fixed, 10)).ok_or("is compressed in an unknown way")?;
    if u16_at(fixed, 34) != 0 {
        return Err("is in another part of the archive");
    }
    // On one system a separator, on the other a letter.
    if name.contains(&b'\\') {
        return Err("has a backslash in its name");
    }
    let mut long = LongSizes::find(extra, name)?;
    let size = long.complete(u32_at(fixed, 24))?;
    let packed = long.complete(u32_at(fixed, 20))?;
    let header = long.complete(u32_at(fixed, 42))?;
    let (kind, mode) = kind_and_mode(fixed[5], u32_at(fixed, 38), name.ends_with(b"/"))?;
    let contradictory = match (kind, method) {
        (EntryKind::Directory, _) => size != 0,
        (_, Method::Stored) => size != packed,
        _ => false,
    };
    if contradictory {
        return Err("has contradictory sizes");
    }
    let crc = u32_at(fixed, 16);
    let name = name.to_vec();
    Ok((ZipEntry { name, kind, mode, method, crc, packed, size, contents: 0 }, header, flags))
}

fn method(number: u16) -> Option<Method> {
    match number {
        0 => Some(Method::Stored),
        8 => Some(Method::Deflated),
        _ => None,
    }
}

fn kind_and_mode(
    system: u8,
    attributes: u32,
    has_slash: bool,
) -> Result<(EntryKind, u32), &'static str> {
    let plain = match has_slash {
        true => (EntryKind::Directory, 0o755),
        false => (EntryKind::File, 0o644),
    };
    // Unix and macOS; others have no modes there.
    let mode = match system {
        3 | 19 => attributes >> 16,
        _ => 0,
    };
    let kind = match mode & 0o170_000 {
        0 => return Ok(if mode == 0 { plain } else { (plain.0, mode & 0o7777) }),
        0o100_000 => EntryKind::File,
        0o040_000 => EntryKind::Directory,
        0o120_000 => EntryKind::Link,
        0o020_000 | 0o060_000 => return Err("is a device"),
        0o010_000 => return Err("is a pipe"),
        _ => return Err("is of a kind that is not extracted"),
    };
    match (kind == EntryKind::Directory) == has_slash {
        true => Ok((kind, mode & 0o7777)),
        false => Err("is a file with a directory's name, or the reverse"),
    }
}

/// The long forms of sizes, in their order, for those whose short form says so.
struct LongSizes<'a> {
    rest: &'a [u8],
}

impl<'a> LongSizes<'a> {
    fn find(mut extra: &'a [u8], name: &[u8]) -> Result<Self, &'static str> {
        let mut found = None;
        // Fewer than four bytes are padding, which some programs leave.
        while extra.len() >= 4 {
            let length = usize::from(u16_at(extra, 2));
            let field = extra.get(4..4 + length).ok_or("has malformed extra fields")?;
            match u16_at(extra, 0) {
                LONG_SIZES if found.replace(field).is_some() => {
                    return Err("has two different sizes");
                }
                UNICODE_NAME if field.get(5..) != Some(name) => {
                    return Err("has two different names");
                }
                _ => {}
            }
            extra = extra.get(4 + length..).unwrap_or_default();
        }
        Ok(Self { rest: found.unwrap_or_default() })
    }

    fn complete(&mut self, short: u32) -> Result<u64, &'static str> {
        if short != u32::MAX {
            return Ok(u64::from(short));
        }
        let (number, rest) = self.rest.split_at_checked(8).ok_or("has no size")?;
        self.rest = rest;
        Ok(u64_at(number, 0))
    }
}

/// Little-endian numbers; zero where the record is too short, which its length was checked against.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    bytes.get(at..at + 2).and_then(|bytes| bytes.try_into().ok()).map_or(0, u16::from_le_bytes)
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|bytes| bytes.try_into().ok()).map_or(0, u32::from_le_bytes)
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes.get(at..at + 8).and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
}
