//! Archives byte by byte, right or wrong as a test wants them.

/// A tar archive.
#[derive(Default)]
pub(crate) struct Tar(pub(crate) Vec<u8>);

impl Tar {
    pub(crate) fn file(self, name: &str, content: &str) -> Self {
        self.entry(b'0', name, "", content.as_bytes())
    }

    pub(crate) fn directory(self, name: &str) -> Self {
        self.entry(b'5', name, "", b"")
    }

    pub(crate) fn link(self, name: &str, target: &str) -> Self {
        self.entry(b'2', name, target, b"")
    }

    pub(crate) fn entry(self, kind: u8, name: &str, link: &str, content: &[u8]) -> Self {
        self.header(header(kind, name, link, content.len())).content(content)
    }

    pub(crate) fn header(mut self, mut header: [u8; 512]) -> Self {
        header[148..156].fill(b' ');
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        self.0.extend_from_slice(&header);
        self
    }

    pub(crate) fn content(mut self, content: &[u8]) -> Self {
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 1024, 0);
        self.0
    }
}

pub(crate) fn header(kind: u8, name: &str, link: &str, size: usize) -> [u8; 512] {
    let mut header = [0; 512];
    header[..name.len()].copy_from_slice(name.as_bytes());
    header[100..107].copy_from_slice(b"0000644");
    if kind == b'5' {
        header[100..107].copy_from_slice(b"0000755");
    }
    header[124..135].copy_from_slice(format!("{size:011o}").as_bytes());
    header[156] = kind;
    header[157..157 + link.len()].copy_from_slice(link.as_bytes());
    header[257..265].copy_from_slice(b"ustar\x0000");
    header
}

/// One entry of a zip archive; every field can be made wrong.
#[derive(Clone)]
pub(crate) struct ZipEntry {
    pub(crate) name: Vec<u8>,
    pub(crate) local_name: Option<Vec<u8>>,
    pub(crate) flags: u16,
    pub(crate) method: u16,
    pub(crate) mode: u32,
    pub(crate) data: Vec<u8>,
    pub(crate) size: u32,
    pub(crate) crc: u32,
    pub(crate) extra: Vec<u8>,
    /// Where the directory says that it is, if that is not true.
    pub(crate) offset: Option<u32>,
}

pub(crate) fn stored(name: &str, content: &[u8]) -> ZipEntry {
    let mut crc = flate2::Crc::new();
    crc.update(content);
    ZipEntry {
        name: name.into(),
        local_name: None,
        flags: 0,
        method: 0,
        mode: 0o100_644,
        data: content.to_vec(),
        size: content.len() as u32,
        crc: crc.sum(),
        extra: Vec::new(),
        offset: None,
    }
}

pub(crate) fn deflated(name: &str, content: &[u8]) -> ZipEntry {
    use std::io::Write;
    let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(content).unwrap();
    ZipEntry { data: encoder.finish().unwrap(), method: 8, ..stored(name, content) }
}

pub(crate) fn zip_link(name: &str, target: &str) -> ZipEntry {
    ZipEntry { mode: 0o120_777, ..stored(name, target.as_bytes()) }
}

pub(crate) fn zip(entries: &[ZipEntry]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut directory = Vec::new();
    for entry in entries {
        let offset = entry.offset.unwrap_or(out.len() as u32);
        let common = |out: &mut Vec<u8>, name: &[u8]| {
            out.extend(entry.flags.to_le_bytes());
            out.extend(entry.method.to_le_bytes());
            out.extend([0, 0, 0x21, 0]);
            out.extend(entry.crc.to_le_bytes());
            out.extend((entry.data.len() as u32).to_le_bytes());
            out.extend(entry.size.to_le_bytes());
            out.extend((name.len() as u16).to_le_bytes());
            out.extend((entry.extra.len() as u16).to_le_bytes());
        };
        let local_name = entry.local_name.as_ref().unwrap_or(&entry.name);
        out.extend(b"PK\x03\x04\x14\0");
        common(&mut out, local_name);
        out.extend_from_slice(local_name);
        out.extend_from_slice(&entry.extra);
        out.extend_from_slice(&entry.data);
        directory.extend(b"PK\x01\x02\x14\x03\x14\0");
        common(&mut directory, &entry.name);
        directory.extend([0; 6]);
        directory.extend((entry.mode << 16).to_le_bytes());
        directory.extend(offset.to_le_bytes());
        directory.extend_from_slice(&entry.name);
        directory.extend_from_slice(&entry.extra);
    }
    let start = out.len() as u32;
    out.extend_from_slice(&directory);
    out.extend(b"PK\x05\x06\0\0\0\0");
    out.extend((entries.len() as u16).to_le_bytes());
    out.extend((entries.len() as u16).to_le_bytes());
    out.extend((directory.len() as u32).to_le_bytes());
    out.extend(start.to_le_bytes());
    out.extend([0, 0]);
    out
}

/// The same archive with the long form of its end as well; `entries` is what that says.
pub(crate) fn with_long_end(archive: &[u8], entries: u64) -> Vec<u8> {
    let (front, end) = archive.split_at(archive.len() - 22);
    let number = |at: usize| u64::from(u32::from_le_bytes(end[at..at + 4].try_into().unwrap()));
    let mut out = front.to_vec();
    out.extend(b"PK\x06\x06");
    out.extend(44u64.to_le_bytes());
    out.extend([45, 3, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for number in [entries, entries, number(12), number(16)] {
        out.extend(number.to_le_bytes());
    }
    out.extend(b"PK\x06\x07\0\0\0\0");
    out.extend((front.len() as u64).to_le_bytes());
    out.extend(1u32.to_le_bytes());
    out.extend_from_slice(end);
    out
}
