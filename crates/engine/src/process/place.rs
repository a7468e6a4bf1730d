//! What has been received of a process, and its log.

use std::path::PathBuf;

use belljar_policy::ProcessId;
use bytes::Bytes;

use crate::engine::Inner;
use crate::log::{Channel, DEFAULT_CAP, LogWriter, Offsets, Position, Record};
use crate::{Error, Result};

/// The host's side of a process's output. Only the attendant of a process has one.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    log: Option<LogWriter>,
    /// What has been received, logged or not.
    received: Offsets,
    /// Somebody has been told that the log cannot be written.
    complained: bool,
}

/// What was new of a piece of output.
pub(super) struct Taken {
    pub(super) record: Record,
    /// Whether the log has it, and where the log goes on after it.
    pub(super) logged: Option<Position>,
}

/// Output that could not be logged.
pub(super) struct NoRoom {
    pub(super) offset: u64,
    pub(super) data: Vec<u8>,
}

impl Place {
    /// For a process that was not there before.
    pub(super) fn new(inner: &Inner, id: &ProcessId) -> Self {
        let path = inner.directory.process(id);
        let log = LogWriter::new(&path, DEFAULT_CAP);
        Self { path, log: Some(log), received: Offsets::default(), complained: false }
    }

    /// Opens the log, and goes on where an earlier attendant left it.
    pub(super) fn open(inner: &Inner, id: &ProcessId) -> Result<Self> {
        let path = inner.directory.process(id);
        let log = LogWriter::open(&path, DEFAULT_CAP)
            .map_err(|source| Error::state("open", &path, source))?;
        let received = log.ends();
        Ok(Self { path, log: Some(log), received, complained: false })
    }

    /// For output that nobody wants to see again.
    pub(super) fn without_log(inner: &Inner, id: &ProcessId) -> Self {
        let path = inner.directory.process(id);
        Self { path, log: None, received: Offsets::default(), complained: false }
    }

    /// Removes the log of a process that will not be started.
    pub(super) fn discard(self) {
        if self.log.is_some()
            && let Err(error) = std::fs::remove_dir_all(&self.path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::debug!(%error, path = %self.path.display(), "a log was left behind");
        }
    }

    pub(super) fn received(&self) -> Offsets {
        self.received
    }

    /// Takes output in: logs it, and gives back what is new of it; `None` where all of it is known.
    ///
    /// A log that cannot be written, because the disk is full for example, is an error that gives the output back: it can
    /// be taken again later. With `even_unlogged` it is taken all the same; it is then missing from the log, with a gap
    /// in the offsets, and the log goes on when there is room again.
    pub(super) fn take(
        &mut self,
        channel: Channel,
        offset: u64,
        mut data: Vec<u8>,
        even_unlogged: bool,
    ) -> Result<Option<Taken>, NoRoom> {
        let expected = self.received.get(channel);
        // No process has written as much as an offset can say; an agent may say so all the same.
        let Some(end) = offset.checked_add(data.len() as u64).filter(|end| *end > expected) else {
            return Ok(None);
        };
        // Sent again after a new connection: the first part is known.
        let known = expected.saturating_sub(offset);
        data.drain(..usize::try_from(known).expect("less than the data's length"));
        let offset = offset + known;
        let logged = match &mut self.log {
            None => None,
            Some(log) => match log.append(channel, offset, &data) {
                Ok(()) => log.position(),
                Err(error) => {
                    if !std::mem::replace(&mut self.complained, true) {
                        tracing::warn!(%error, path = %self.path.display(), "output cannot be logged");
                    }
                    if !even_unlogged {
                        return Err(NoRoom { offset, data });
                    }
                    None
                }
            },
        };
        self.received.set(channel, end);
        Ok(Some(Taken { record: Record { channel, offset, data: Bytes::from(data) }, logged }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_offset_can_say_is_not_taken() {
        let received = Offsets::default();
        let mut place = Place { path: PathBuf::new(), log: None, received, complained: false };
        let mut take = |offset, data: &[u8]| {
            let taken = place.take(Channel::Stdout, offset, data.to_vec(), true);
            taken.ok().flatten().map(|taken| taken.record.offset)
        };
        assert_eq!(take(0, b"abc"), Some(0));
        assert_eq!(take(u64::MAX, b"d"), None);
        assert_eq!(take(u64::MAX - 1, b"d"), Some(u64::MAX - 1));
        assert_eq!(place.received().sum(), u64::MAX);
        place.received.set(Channel::Stderr, u64::MAX);
        assert_eq!(place.received().sum(), u64::MAX);
    }
}
