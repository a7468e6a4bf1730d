//! Appends to a process's log.

use std::collections::VecDeque;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{Channel, HEADER, Header, MAX_DATA, Offsets, Position, segment_path, segments};

/// The cap is divided into this many segments, so that rotation loses an eighth of what is kept.
const SEGMENTS: u64 = 8;

/// What a segment other than the first begins with: for each channel an empty record where it goes on. Otherwise nobody
/// could tell how far one reaches whose records are all gone.
const MARKS: usize = Channel::ALL.len() * HEADER;

/// The one writer of a log.
///
/// Preconditions: the caller is the one attendant of the process. Segments appear with the first byte.
#[derive(Debug)]
pub(crate) struct LogWriter {
    directory: PathBuf,
    cap: u64,
    /// Number and length of the segments before the current one, oldest first.
    full: VecDeque<(u64, u64)>,
    current: Option<Segment>,
    next_number: u64,
    ends: Offsets,
    buffer: Vec<u8>,
}

#[derive(Debug)]
struct Segment {
    number: u64,
    file: File,
    length: u64,
}

impl LogWriter {
    /// A log in `directory`, where there is none.
    pub(crate) fn new(directory: &Path, cap: u64) -> Self {
        Self {
            directory: directory.to_owned(),
            cap: cap.max(SEGMENTS * HEADER as u64),
            full: VecDeque::new(),
            current: None,
            next_number: 0,
            ends: Offsets::default(),
            buffer: Vec::new(),
        }
    }

    /// Opens the log in `directory`; continues one that an earlier writer left.
    pub(crate) fn open(directory: &Path, cap: u64) -> io::Result<Self> {
        let mut writer = Self::new(directory, cap);
        for number in segments(directory)? {
            let path = segment_path(directory, number);
            let mut file = OpenOptions::new().read(true).write(true).open(path)?;
            let length = recover(&mut file, &mut writer.ends)?;
            if let Some(previous) = writer.current.replace(Segment { number, file, length }) {
                writer.full.push_back((previous.number, previous.length));
            }
            writer.next_number = number + 1;
        }
        Ok(writer)
    }

    /// The offsets right after the last byte of each channel.
    pub(crate) fn ends(&self) -> Offsets {
        self.ends
    }

    /// Right after the last record; `None` while there is none.
    pub(crate) fn position(&self) -> Option<Position> {
        let segment = self.current.as_ref()?;
        Some(Position { segment: segment.number, byte: segment.length })
    }

    /// Appends bytes of one channel that start at `offset`; what the log already has is left out.
    ///
    /// On error nothing of the failed record stays and the log can be appended to later: the bytes in between are then
    /// missing, and readers see that from the offsets.
    pub(crate) fn append(&mut self, channel: Channel, offset: u64, data: &[u8]) -> io::Result<()> {
        let known = self.ends.get(channel).saturating_sub(offset);
        let Some(data) = usize::try_from(known).ok().and_then(|known| data.get(known..)) else {
            return Ok(());
        };
        let mut offset = offset + known;
        for piece in data.chunks(MAX_DATA) {
            self.append_record(channel, offset, piece)?;
            offset += piece.len() as u64;
            self.ends.set(channel, offset);
        }
        Ok(())
    }

    fn append_record(&mut self, channel: Channel, offset: u64, data: &[u8]) -> io::Result<()> {
        self.rotate((MARKS + HEADER + data.len()) as u64)?;
        let Some(segment) = &mut self.current else {
            return Err(io::Error::other("a log without a segment"));
        };
        self.buffer.clear();
        if segment.number > 0 && segment.length == 0 {
            for channel in Channel::ALL {
                let mark = Header { channel, offset: self.ends.get(channel), length: 0 };
                self.buffer.extend_from_slice(&mark.encode());
            }
        }
        self.buffer.extend_from_slice(&Header { channel, offset, length: data.len() }.encode());
        self.buffer.extend_from_slice(data);
        match segment.file.write_all(&self.buffer) {
            Ok(()) => {
                segment.length += self.buffer.len() as u64;
                Ok(())
            }
            Err(error) => {
                // Half a record would hide what comes after it in this segment. Where it cannot be cut off, the
                // segment is left as it is: readers take the torn end for the end.
                let cut = segment.file.set_len(segment.length);
                if cut.and_then(|()| segment.file.seek(SeekFrom::Start(segment.length))).is_err() {
                    self.full.push_back((segment.number, segment.length));
                    self.current = None;
                }
                Err(error)
            }
        }
    }

    /// Makes a segment; with the first one comes the directory, so that a silent process costs no file at all.
    fn create(&self, path: &Path) -> io::Result<File> {
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        match options.open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                DirBuilder::new().mode(0o700).create(&self.directory)?;
                options.open(path)
            }
            other => other,
        }
    }

    /// Makes room for `incoming` bytes: a new segment where the current one is full, and the oldest ones gone.
    fn rotate(&mut self, incoming: u64) -> io::Result<()> {
        let limit = self.cap / SEGMENTS;
        if self.current.as_ref().is_some_and(|segment| segment.length + incoming <= limit) {
            return Ok(());
        }
        if self.current.as_ref().is_none_or(|segment| segment.length > 0) {
            let path = segment_path(&self.directory, self.next_number);
            let file = self.create(&path)?;
            let fresh = Segment { number: self.next_number, file, length: 0 };
            self.next_number += 1;
            if let Some(previous) = self.current.replace(fresh) {
                self.full.push_back((previous.number, previous.length));
            }
        }
        let mut total =
            self.full.iter().map(|(_, length)| length).sum::<u64>() + limit.max(incoming);
        while total > self.cap {
            let Some((number, length)) = self.full.pop_front() else { break };
            match fs::remove_file(segment_path(&self.directory, number)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => total -= length,
            }
        }
        Ok(())
    }
}

/// Reads a segment of an earlier writer: notes the ends, cuts off a torn record, and leaves the position at the end.
fn recover(file: &mut File, ends: &mut Offsets) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let mut position = 0;
    let mut reader = io::BufReader::with_capacity(64 << 10, &mut *file);
    let mut bytes = [0; HEADER];
    while position + HEADER as u64 <= size {
        reader.read_exact(&mut bytes)?;
        let Some(header) = Header::decode(&bytes) else { break };
        let next = position + (HEADER + header.length) as u64;
        if next > size {
            break;
        }
        reader.seek_relative(i64::try_from(header.length).expect("at most MAX_DATA"))?;
        ends.set(header.channel, header.offset + header.length as u64);
        position = next;
    }
    drop(reader);
    if position < size {
        file.set_len(position)?;
    }
    file.seek(SeekFrom::Start(position))?;
    Ok(position)
}
