//! The bounded, rotated log of one process.
//!
//! A log is a directory of segments `log.<number>`, each a sequence of records
//! `[u8 channel][u64 offset][u32 length][data]` (little-endian). Offsets count the bytes of one channel from the start
//! of the process, so a reader can ask for "standard error from byte 4096" at any time. When all segments together
//! grow beyond the cap, the oldest goes; offsets never change, a reader that asks for lost bytes sees a later offset. Every
//! segment but the first begins with an empty record per channel, which tells where that channel goes on.
//!
//! Guarantees: at most one writer (the process's attendant); a crash leaves at most one torn record, at the very
//! end, which the next writer cuts off and readers take for "not there yet". Not here: who may read a log.

mod bound;
mod extent;
mod reader;
mod writer;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

pub(crate) use bound::{Written, bound_logs};
pub(crate) use extent::Extent;
pub use reader::LogReader;
pub(crate) use writer::LogWriter;

/// Bytes of output kept per process, all segments together.
pub(crate) const DEFAULT_CAP: u64 = 64 << 20;

/// Bytes of one record before its data.
const HEADER: usize = 13;

/// The longest data of one record; larger writes are split. Also what a reader believes at most.
const MAX_DATA: usize = 256 << 10;

/// Where a byte of output came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Channel {
    Stdout,
    Stderr,
}

impl Channel {
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];

    const fn tag(self) -> u8 {
        match self {
            Self::Stdout => 0,
            Self::Stderr => 1,
        }
    }

    const fn from_tag(tag: u8) -> Option<Self> {
        match tag {
            0 => Some(Self::Stdout),
            1 => Some(Self::Stderr),
            _ => None,
        }
    }
}

/// One offset per channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    pub stdout: u64,
    pub stderr: u64,
}

impl Offsets {
    #[must_use]
    pub const fn get(&self, channel: Channel) -> u64 {
        match channel {
            Channel::Stdout => self.stdout,
            Channel::Stderr => self.stderr,
        }
    }

    /// Of both channels; each is what an agent says.
    pub(crate) const fn sum(self) -> u64 {
        self.stdout.saturating_add(self.stderr)
    }

    pub const fn set(&mut self, channel: Channel, offset: u64) {
        match channel {
            Channel::Stdout => self.stdout = offset,
            Channel::Stderr => self.stderr = offset,
        }
    }
}

/// A piece of output as it was logged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    pub channel: Channel,
    /// Of the first byte of `data`, counted per channel.
    pub offset: u64,
    /// Shared, not copied, between those who follow the same process.
    pub data: Bytes,
}

/// A place between two records of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    segment: u64,
    byte: u64,
}

struct Header {
    channel: Channel,
    offset: u64,
    length: usize,
}

impl Header {
    fn encode(&self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[0] = self.channel.tag();
        bytes[1..9].copy_from_slice(&self.offset.to_le_bytes());
        let length = u32::try_from(self.length).expect("records are split at MAX_DATA");
        bytes[9..13].copy_from_slice(&length.to_le_bytes());
        bytes
    }

    /// `None`: not a header that the writer wrote.
    fn decode(bytes: &[u8; HEADER]) -> Option<Self> {
        let channel = Channel::from_tag(bytes[0])?;
        let offset = u64::from_le_bytes(bytes[1..9].try_into().expect("eight bytes"));
        let length = u32::from_le_bytes(bytes[9..13].try_into().expect("four bytes")) as usize;
        (length <= MAX_DATA).then_some(Self { channel, offset, length })
    }
}

fn segment_path(directory: &Path, number: u64) -> PathBuf {
    directory.join(format!("log.{number}"))
}

/// The numbers of the segments that exist, ascending.
fn segments(directory: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    let entries = match fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(numbers),
        Err(error) => return Err(error),
    };
    for entry in entries {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("log.")?.parse::<u64>().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests;
