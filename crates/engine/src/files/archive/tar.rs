//! Writing POSIX tar: plain headers, and extended ones only where a name or size does not fit.

use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::time::UNIX_EPOCH;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::{FileInfo, FileKind};

pub(in crate::files) const BLOCK: usize = 512;

/// The largest number that eleven octal digits can hold.
pub(in crate::files) const LARGEST_PLAIN_SIZE: u64 = 0o777_7777_7777;

const NAME: usize = 100;

#[derive(Debug)]
pub(super) struct TarWriter {
    gzip: Option<GzEncoder<Vec<u8>>>,
    /// Bytes of contents since the last header.
    written: u64,
}

impl TarWriter {
    pub(super) fn plain() -> Self {
        Self { gzip: None, written: 0 }
    }

    pub(super) fn compressed() -> Self {
        // Somebody waits for it, and the network is rarely slower than better compression.
        Self { gzip: Some(GzEncoder::new(Vec::new(), Compression::fast())), written: 0 }
    }

    pub(super) fn entry(&mut self, entry: &FileInfo, out: &mut Vec<u8>) {
        self.written = 0;
        let mut name = entry.path.as_os_str().as_bytes().to_vec();
        let link =
            entry.link_target.as_deref().map_or(&b""[..], |path| path.as_os_str().as_bytes());
        let (kind, size) = match entry.kind {
            FileKind::Directory => (b'5', 0),
            FileKind::Symlink => (b'2', 0),
            _ => (b'0', entry.size),
        };
        if kind == b'5' {
            name.push(b'/');
        }
        let mut extended = Vec::new();
        if name.len() > NAME {
            record(&mut extended, "path", &name);
        }
        if link.len() > NAME {
            record(&mut extended, "linkpath", link);
        }
        let fits = size <= LARGEST_PLAIN_SIZE;
        if !fits {
            record(&mut extended, "size", size.to_string().as_bytes());
        }
        if !extended.is_empty() {
            let length = extended.len() as u64;
            self.put(&header(b"PaxHeader", b"", b'x', 0o644, length, 0), out);
            self.put(&extended, out);
            self.put(padding(length), out);
        }
        let modified = entry.modified.duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
        let size = if fits { size } else { 0 };
        self.put(&header(&name, link, kind, entry.mode, size, modified), out);
    }

    pub(super) fn contents(&mut self, data: &[u8], out: &mut Vec<u8>) {
        self.written += data.len() as u64;
        self.put(data, out);
    }

    pub(super) fn end_contents(&mut self, out: &mut Vec<u8>) {
        self.put(padding(self.written), out);
    }

    pub(super) fn finish(&mut self, out: &mut Vec<u8>) {
        self.put(&[0; 2 * BLOCK], out);
        if let Some(gzip) = self.gzip.take() {
            out.extend(gzip.finish().expect("writing to memory does not fail"));
        }
    }

    fn put(&mut self, data: &[u8], out: &mut Vec<u8>) {
        match &mut self.gzip {
            Some(gzip) => {
                gzip.write_all(data).expect("writing to memory does not fail");
                out.append(gzip.get_mut());
            }
            None => out.extend_from_slice(data),
        }
    }
}

fn padding(size: u64) -> &'static [u8] {
    let over = (size % BLOCK as u64) as usize;
    let zeros = &[0; BLOCK];
    if over == 0 { &[] } else { &zeros[over..] }
}

/// One line of an extended header; its length counts itself.
fn record(out: &mut Vec<u8>, key: &str, value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut length = rest;
    while length != rest + length.to_string().len() {
        length = rest + length.to_string().len();
    }
    out.extend(format!("{length} {key}=").bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn header(name: &[u8], link: &[u8], kind: u8, mode: u32, size: u64, modified: u64) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |offset: usize, value: &[u8], most: usize| {
        let length = value.len().min(most);
        header[offset..offset + length].copy_from_slice(&value[..length]);
    };
    put(0, name, NAME);
    put(100, format!("{:07o}", mode & 0o7777).as_bytes(), 7);
    // Whose it was means nothing elsewhere.
    put(108, b"0000000", 7);
    put(116, b"0000000", 7);
    put(124, format!("{size:011o}").as_bytes(), 11);
    put(136, format!("{:011o}", modified.min(LARGEST_PLAIN_SIZE)).as_bytes(), 11);
    put(148, b"        ", 8);
    put(156, &[kind], 1);
    put(157, link, NAME);
    put(257, b"ustar\x0000", 8);
    let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
    header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_count_themselves() {
        for (value, expected) in [("a", "9 path=a\n"), ("ab", "11 path=ab\n"), ("", "8 path=\n")] {
            let mut out = Vec::new();
            record(&mut out, "path", value.as_bytes());
            let text = String::from_utf8(out).unwrap();
            let length: usize = text.split(' ').next().unwrap().parse().unwrap();
            assert_eq!(length, text.len());
            assert_eq!(text, expected);
        }
        for length in 80..120 {
            let mut out = Vec::new();
            record(&mut out, "path", &vec![b'x'; length]);
            let text = String::from_utf8(out).unwrap();
            assert_eq!(text.split(' ').next().unwrap().parse::<usize>().unwrap(), text.len());
        }
    }
}
