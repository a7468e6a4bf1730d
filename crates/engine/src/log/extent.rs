//! How far a log reaches, for those who only want to know that.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::Path;

use super::{Channel, HEADER, Header, Offsets, segment_path, segments};

/// The offsets of the oldest byte that is kept and right after the newest one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) kept_from: Offsets,
    pub(crate) end: Offsets,
}

impl Extent {
    /// Reads the log's headers. `end`: where that is known, most of the log need not be read.
    pub(crate) fn of(directory: &Path, end: Option<Offsets>) -> io::Result<Self> {
        let numbers = segments(directory)?;
        // A log that is gone keeps nothing of what is known to have been in it.
        let rotated = numbers.first().is_none_or(|first| *first > 0);
        let mut first: [Option<u64>; 2] = if rotated { [None; 2] } else { [Some(0); 2] };
        let mut last = Offsets::default();
        for number in numbers {
            let missing = Channel::ALL.into_iter().any(|channel| {
                first[usize::from(channel.tag())].is_none()
                    && end.is_none_or(|end| end.get(channel) > 0)
            });
            if end.is_some() && !missing {
                break;
            }
            let file = match File::open(segment_path(directory, number)) {
                Ok(file) => file,
                // Rotated away meanwhile.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            read(file, |header| {
                first[usize::from(header.channel.tag())].get_or_insert(header.offset);
                last.set(header.channel, header.offset + header.length as u64);
            })?;
        }
        let end = end.unwrap_or(last);
        let mut kept_from = end;
        for channel in Channel::ALL {
            if let Some(first) = first[usize::from(channel.tag())] {
                kept_from.set(channel, first);
            }
        }
        Ok(Self { kept_from, end })
    }
}

/// Shows every complete record's header.
fn read(file: File, mut see: impl FnMut(&Header)) -> io::Result<()> {
    let size = file.metadata()?.len();
    // Small: of most records only the header is wanted.
    let mut reader = BufReader::with_capacity(4 << 10, file);
    let (mut position, mut bytes) = (0, [0; HEADER]);
    while position + HEADER as u64 <= size {
        reader.read_exact(&mut bytes)?;
        let Some(header) = Header::decode(&bytes) else { break };
        position += (HEADER + header.length) as u64;
        if position > size {
            break;
        }
        reader.seek_relative(i64::try_from(header.length).expect("at most MAX_DATA"))?;
        see(&header);
    }
    Ok(())
}
