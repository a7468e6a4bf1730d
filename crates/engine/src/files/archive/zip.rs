//! Writing zip while reading: sizes and checksums follow the contents, and the directory of all entries comes last.
//!
//! That directory is the one thing that grows with the number of entries; above [`MOST_DIRECTORY_BYTES`] the archive is
//! refused.

use std::os::unix::ffi::OsStrExt;

use belljar_codes::Code;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};

use super::super::{FileInfo, FileKind};
use super::dos_time::dos_time;
use crate::{Error, Result};

const MOST_DIRECTORY_BYTES: usize = 32 << 20;

/// From this size on the long form of sizes is used; compression may add a little.
const LONG_FROM: u64 = 0xf000_0000;

/// "Look for it in the long form."
const ELSEWHERE: u32 = u32::MAX;

/// Sizes follow the contents; the name is UTF-8.
const SIZES_FOLLOW: u16 = 1 << 3;
const UTF8: u16 = 1 << 11;

const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// Versions needed to extract: for directories and compression, and for the long form.
const PLAIN_VERSION: u16 = 20;
const LONG_VERSION: u16 = 45;

/// The upper half of "made by": modes are those of Unix.
const UNIX: u16 = 3 << 8;

#[derive(Debug, Default)]
pub(super) struct ZipWriter {
    /// Bytes written so far.
    offset: u64,
    directory: Vec<u8>,
    entries: u64,
    current: Option<Current>,
}

/// The entry whose contents are being written.
#[derive(Debug)]
struct Current {
    entry: Entry,
    crc: Crc,
    compress: Compress,
}

#[derive(Debug)]
struct Entry {
    name: Vec<u8>,
    flags: u16,
    method: u16,
    time: (u16, u16),
    attributes: u32,
    crc: u32,
    compressed: u64,
    size: u64,
    offset: u64,
    is_long: bool,
}

impl ZipWriter {
    pub(super) fn entry(&mut self, info: &FileInfo, out: &mut Vec<u8>) -> Result<()> {
        let mut name = info.path.as_os_str().as_bytes().to_vec();
        let kind = match info.kind {
            FileKind::Directory => 0o040_000,
            FileKind::Symlink => 0o120_000,
            _ => 0o100_000,
        };
        let is_directory = info.kind == FileKind::Directory;
        if is_directory {
            name.push(b'/');
        }
        let utf8 = if std::str::from_utf8(&name).is_ok() { UTF8 } else { 0 };
        let streamed = info.kind == FileKind::File;
        let link = info.link_target.as_deref().map_or(&b""[..], |path| path.as_os_str().as_bytes());
        let mut crc = Crc::new();
        crc.update(link);
        let entry = Entry {
            name,
            flags: if streamed { utf8 | SIZES_FOLLOW } else { utf8 },
            method: if streamed { DEFLATED } else { STORED },
            time: dos_time(info.modified),
            attributes: (kind | info.mode & 0o7777) << 16 | u32::from(is_directory) << 4,
            crc: crc.sum(),
            compressed: link.len() as u64,
            size: link.len() as u64,
            offset: self.offset,
            is_long: info.size >= LONG_FROM,
        };
        self.put(&entry.local_header(), out);
        if streamed {
            let compress = Compress::new(Compression::fast(), false);
            self.current = Some(Current { entry, crc: Crc::new(), compress });
            return Ok(());
        }
        self.put(link, out);
        self.add(&entry)
    }

    pub(super) fn contents(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<()> {
        let Some(current) = &mut self.current else { return Ok(()) };
        current.crc.update(data);
        self.compress(data, FlushCompress::None, out)
    }

    pub(super) fn end_contents(&mut self, out: &mut Vec<u8>) -> Result<()> {
        self.compress(&[], FlushCompress::Finish, out)?;
        let Some(mut current) = self.current.take() else { return Ok(()) };
        let entry = &mut current.entry;
        entry.crc = current.crc.sum();
        entry.compressed = current.compress.total_out();
        entry.size = current.compress.total_in();
        let descriptor = entry.descriptor();
        self.put(&descriptor, out);
        self.add(&current.entry)
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        let start = self.offset;
        let directory = std::mem::take(&mut self.directory);
        let size = directory.len() as u64;
        self.put(&directory, out);
        let end = self.offset;
        let mut tail = Vec::new();
        if self.entries >= 0xffff || start >= u64::from(ELSEWHERE) {
            put32(&mut tail, 0x0606_4b50);
            put64(&mut tail, 44);
            put16(&mut tail, UNIX | LONG_VERSION);
            put16(&mut tail, LONG_VERSION);
            put32(&mut tail, 0);
            put32(&mut tail, 0);
            for number in [self.entries, self.entries, size, start] {
                put64(&mut tail, number);
            }
            put32(&mut tail, 0x0706_4b50);
            put32(&mut tail, 0);
            put64(&mut tail, end);
            put32(&mut tail, 1);
        }
        let entries = u16::try_from(self.entries).unwrap_or(u16::MAX);
        put32(&mut tail, 0x0605_4b50);
        put32(&mut tail, 0);
        put16(&mut tail, entries);
        put16(&mut tail, entries);
        put32(&mut tail, short(size));
        put32(&mut tail, short(start));
        put16(&mut tail, 0);
        self.put(&tail, out);
    }

    fn compress(&mut self, mut data: &[u8], flush: FlushCompress, out: &mut Vec<u8>) -> Result<()> {
        let Some(Current { compress, .. }) = &mut self.current else { return Ok(()) };
        let before = compress.total_out();
        loop {
            out.reserve(4096);
            let taken = compress.total_in();
            let status = compress
                .compress_vec(data, out, flush)
                .map_err(|error| Error::new(Code::FileFailed, "compress").with_source(error))?;
            data = data.get((compress.total_in() - taken) as usize..).unwrap_or_default();
            let done = match flush {
                FlushCompress::Finish => status == Status::StreamEnd,
                _ => data.is_empty(),
            };
            if done {
                break;
            }
        }
        self.offset += compress.total_out() - before;
        Ok(())
    }

    fn put(&mut self, data: &[u8], out: &mut Vec<u8>) {
        self.offset += data.len() as u64;
        out.extend_from_slice(data);
    }

    /// Remembers an entry for the directory at the end.
    fn add(&mut self, entry: &Entry) -> Result<()> {
        self.entries += 1;
        entry.write_directory_entry(&mut self.directory);
        if self.directory.len() > MOST_DIRECTORY_BYTES {
            return Err(Error::new(Code::FileFailed, "too many entries for a zip archive")
                .with_remedy("choose tar, which has no limit"));
        }
        Ok(())
    }
}

impl Entry {
    fn local_header(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64 + self.name.len());
        put32(&mut out, 0x0403_4b50);
        put16(&mut out, self.version());
        self.put_common(&mut out);
        let follows = self.flags & SIZES_FOLLOW != 0;
        put32(&mut out, if follows { 0 } else { self.crc });
        for number in [self.compressed, self.size] {
            put32(&mut out, if self.is_long { ELSEWHERE } else { number as u32 });
        }
        put16(&mut out, self.name.len() as u16);
        put16(&mut out, if self.is_long { 20 } else { 0 });
        out.extend_from_slice(&self.name);
        if self.is_long {
            put16(&mut out, 1);
            put16(&mut out, 16);
            put64(&mut out, 0);
            put64(&mut out, 0);
        }
        out
    }

    /// What follows the contents.
    fn descriptor(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24);
        put32(&mut out, 0x0807_4b50);
        put32(&mut out, self.crc);
        for number in [self.compressed, self.size] {
            match self.is_long {
                true => put64(&mut out, number),
                false => put32(&mut out, number as u32),
            }
        }
        out
    }

    fn write_directory_entry(&self, out: &mut Vec<u8>) {
        let mut long = Vec::new();
        for number in [self.size, self.compressed] {
            if self.is_long {
                put64(&mut long, number);
            }
        }
        if self.offset >= u64::from(ELSEWHERE) {
            put64(&mut long, self.offset);
        }
        put32(out, 0x0201_4b50);
        put16(out, UNIX | self.version());
        put16(out, self.version());
        self.put_common(out);
        put32(out, self.crc);
        for number in [self.compressed, self.size] {
            put32(out, if self.is_long { ELSEWHERE } else { number as u32 });
        }
        put16(out, self.name.len() as u16);
        put16(out, if long.is_empty() { 0 } else { long.len() as u16 + 4 });
        // No comment, first disk, no internal attributes.
        out.extend_from_slice(&[0; 6]);
        put32(out, self.attributes);
        put32(out, short(self.offset));
        out.extend_from_slice(&self.name);
        if !long.is_empty() {
            put16(out, 1);
            put16(out, long.len() as u16);
            out.extend_from_slice(&long);
        }
    }

    fn put_common(&self, out: &mut Vec<u8>) {
        put16(out, self.flags);
        put16(out, self.method);
        put16(out, self.time.0);
        put16(out, self.time.1);
    }

    fn version(&self) -> u16 {
        let long = self.is_long || self.offset >= u64::from(ELSEWHERE);
        if long { LONG_VERSION } else { PLAIN_VERSION }
    }
}

fn short(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(ELSEWHERE)
}

fn put16(out: &mut Vec<u8>, number: u16) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put32(out: &mut Vec<u8>, number: u32) {
    out.extend_from_slice(&number.to_le_bytes());
}

fn put64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_le_bytes());
}
