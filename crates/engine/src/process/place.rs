//! What has been received of a process, and its log.

use std::path::PathBuf;

use belljar_policy::ProcessId;

use crate::engine::Inner;
use crate::log::{Channel, DEFAULT_CAP, LogWriter, Offsets};
use crate::{Error, Result};

/// The host's side of a process's output. Only the attendant of a process has one.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    log: Option<LogWriter>,
    /// What has been received, logged or not.
    received: Offsets,
    /// Bytes that could not be written, because the disk was full for example.
    unlogged: u64,
}

impl Place {
    /// Opens the log, and goes on where an earlier attendant left it.
    pub(super) fn open(inner: &Inner, id: &ProcessId) -> Result<Self> {
        let path = inner.directory.process(id);
        let log = LogWriter::open(&path, DEFAULT_CAP)
            .map_err(|source| Error::state("open", &path, source))?;
        let received = log.ends();
        Ok(Self { path, log: Some(log), received, unlogged: 0 })
    }

    /// For output that nobody wants to see again.
    pub(super) fn without_log(inner: &Inner, id: &ProcessId) -> Self {
        let path = inner.directory.process(id);
        Self { path, log: None, received: Offsets::default(), unlogged: 0 }
    }

    pub(super) fn received(&self) -> Offsets {
        self.received
    }

    /// Takes output in: logs it, and gives back what is new of it.
    ///
    /// A log that cannot be written costs log, never output: bytes that find no room are missing from it, with a gap in
    /// the offsets, and it goes on when there is room again.
    pub(super) fn take(&mut self, channel: Channel, offset: u64, mut data: Vec<u8>) -> Vec<u8> {
        let expected = self.received.get(channel);
        let end = offset + data.len() as u64;
        if end <= expected {
            return Vec::new();
        }
        // Sent again after a new connection: the first part is known.
        let known = expected.saturating_sub(offset);
        data.drain(..usize::try_from(known).expect("less than the data's length"));
        if let Some(log) = &mut self.log
            && let Err(error) = log.append(channel, offset + known, &data)
        {
            if self.unlogged == 0 {
                tracing::warn!(%error, path = %self.path.display(), "output is not logged");
            }
            self.unlogged += data.len() as u64;
        }
        self.received.set(channel, end);
        data
    }
}
