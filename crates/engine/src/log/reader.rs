//! Replays a process's log from any offset that is still kept.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::{HEADER, Header, Offsets, Position, Record, segment_path, segments};

/// A reader at its own position and speed. Any number of them read while the writer writes; none of them costs the
/// writer anything.
#[derive(Debug)]
pub struct LogReader {
    directory: PathBuf,
    /// What the caller wants next, per channel.
    wanted: Offsets,
    current: Option<Current>,
    /// Segments up to this number have been read.
    passed: Option<u64>,
}

#[derive(Debug)]
struct Current {
    number: u64,
    reader: BufReader<File>,
    /// Of the next record.
    position: u64,
}

impl LogReader {
    /// Starts at the given offsets. Bytes that are no longer kept are skipped: the first record then has a later
    /// offset than the one asked for.
    #[must_use]
    pub fn new(directory: &Path, from: Offsets) -> Self {
        Self { directory: directory.to_owned(), wanted: from, current: None, passed: None }
    }

    /// Goes on from a place that another reader or the writer was at.
    pub(crate) fn resume(
        directory: &Path,
        from: Offsets,
        at: Option<Position>,
    ) -> io::Result<Self> {
        let mut reader = Self::new(directory, from);
        let Some(at) = at else { return Ok(reader) };
        match File::open(segment_path(directory, at.segment)) {
            Ok(file) => {
                let mut current = Current::new(at.segment, file);
                current.position = at.byte;
                current.rewind()?;
                reader.current = Some(current);
            }
            // Rotated away: everything that is left comes after it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                reader.passed = Some(at.segment);
            }
            Err(error) => return Err(error),
        }
        Ok(reader)
    }

    /// Right after the last record read; `None` before the first.
    pub(crate) fn place(&self) -> Option<Position> {
        let current = self.current.as_ref()?;
        Some(Position { segment: current.number, byte: current.position })
    }

    /// The next offsets this reader will deliver.
    #[must_use]
    pub fn position(&self) -> Offsets {
        self.wanted
    }

    /// The next record, in the order in which output arrived. `None`: that is all for now.
    pub fn next_record(&mut self) -> io::Result<Option<Record>> {
        loop {
            if let Some(current) = &mut self.current
                && let Some(record) = current.read(&mut self.wanted)?
            {
                return Ok(Some(record));
            }
            if !self.advance()? {
                return Ok(None);
            }
        }
    }

    /// Moves to the next segment once the current one is read to its end. False: there is none yet.
    fn advance(&mut self) -> io::Result<bool> {
        let after = self.current.as_ref().map(|current| current.number).or(self.passed);
        let next = segments(&self.directory)?
            .into_iter()
            .find(|number| after.is_none_or(|after| *number > after));
        let Some(number) = next else { return Ok(false) };
        // The writer may have added to the current segment between our last read and the birth of the next one, and
        // never after that. So look once more before leaving.
        if let Some(current) = &mut self.current
            && current.has_more()?
        {
            return Ok(true);
        }
        match File::open(segment_path(&self.directory, number)) {
            Ok(file) => {
                self.current = Some(Current::new(number, file));
                Ok(true)
            }
            // Rotated away between listing and opening; the next round finds a later one.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }
}

impl Current {
    fn new(number: u64, file: File) -> Self {
        Self { number, reader: BufReader::with_capacity(64 << 10, file), position: 0 }
    }

    /// The next record with bytes that are wanted; `None` at the end of what is completely written.
    fn read(&mut self, wanted: &mut Offsets) -> io::Result<Option<Record>> {
        loop {
            let Some(header) = self.header()? else { return Ok(None) };
            let start = wanted.get(header.channel);
            let end = header.offset + header.length as u64;
            let next = self.position + (HEADER + header.length) as u64;
            if end <= start || header.length == 0 {
                if next > self.reader.get_ref().metadata()?.len() {
                    self.rewind()?;
                    return Ok(None);
                }
                let length = i64::try_from(header.length).expect("at most MAX_DATA");
                self.reader.seek_relative(length)?;
                self.position = next;
                continue;
            }
            let mut data = vec![0; header.length];
            if !fill(&mut self.reader, &mut data)? {
                self.rewind()?;
                return Ok(None);
            }
            self.position = next;
            let skipped = start.saturating_sub(header.offset);
            let mut data = Bytes::from(data);
            bytes::Buf::advance(
                &mut data,
                usize::try_from(skipped).expect("less than the record's length"),
            );
            wanted.set(header.channel, end);
            let offset = header.offset + skipped;
            return Ok(Some(Record { channel: header.channel, offset, data }));
        }
    }

    fn header(&mut self) -> io::Result<Option<Header>> {
        let mut bytes = [0; HEADER];
        if !fill(&mut self.reader, &mut bytes)? {
            self.rewind()?;
            return Ok(None);
        }
        Header::decode(&bytes)
            .map(Some)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a damaged log record"))
    }

    /// Whether a complete record has appeared after the last one read.
    fn has_more(&mut self) -> io::Result<bool> {
        let Some(header) = self.header()? else { return Ok(false) };
        self.rewind()?;
        let end = self.position + (HEADER + header.length) as u64;
        Ok(end <= self.reader.get_ref().metadata()?.len())
    }

    /// Back to the start of the record that was not completely there.
    fn rewind(&mut self) -> io::Result<()> {
        self.reader.seek(SeekFrom::Start(self.position)).map(drop)
    }
}

/// Fills the buffer, or returns false at the end of the file.
fn fill(reader: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
