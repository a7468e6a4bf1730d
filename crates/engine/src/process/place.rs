//! Where a process is attended to: its directory, held by its attendant.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::PathBuf;

use belljar_policy::ProcessId;

use crate::engine::Inner;
use crate::lock::DirectoryLock;
use crate::log::{Channel, DEFAULT_CAP, LogWriter, Offsets};
use crate::{Error, Result};

/// The directory of a process. Holding it means attending to the process: nobody else writes its log or its end.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    _lock: DirectoryLock,
    log: Option<LogWriter>,
    /// What has been received, logged or not.
    received: Offsets,
    /// Bytes that could not be written, because the disk was full for example.
    unlogged: u64,
}

impl Place {
    /// Makes the place of a new process.
    pub(super) fn new(inner: &Inner, id: &ProcessId, keep_output: bool) -> Result<Self> {
        let path = inner.directory.process(id);
        let fail = |source| Error::state("make", &path, source);
        DirBuilder::new().mode(0o700).create(&path).map_err(fail)?;
        let lock = DirectoryLock::try_acquire(&path).map_err(fail)?;
        let lock = lock.ok_or_else(|| fail(io::Error::other("a new directory was taken")))?;
        let log = if keep_output {
            Some(LogWriter::open(&path, DEFAULT_CAP).map_err(fail)?)
        } else {
            None
        };
        Ok(Self { path, _lock: lock, log, received: Offsets::default(), unlogged: 0 })
    }

    /// Takes over the place of a process whose attendant is gone; `None` if it is not.
    pub(super) fn take_over(inner: &Inner, id: &ProcessId) -> Result<Option<Self>> {
        let path = inner.directory.process(id);
        let fail = |source| Error::state("open", &path, source);
        let Some(lock) = DirectoryLock::try_acquire(&path).map_err(fail)? else { return Ok(None) };
        let log = LogWriter::open(&path, DEFAULT_CAP).map_err(fail)?;
        let received = log.ends();
        Ok(Some(Self { path, _lock: lock, log: Some(log), received, unlogged: 0 }))
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

    /// Leaves the place; nothing stays of one that holds no log.
    pub(super) fn leave(self) {
        let ends = self.log.as_ref().map(LogWriter::ends).unwrap_or_default();
        if ends == Offsets::default()
            && let Err(error) = fs::remove_dir(&self.path)
        {
            tracing::debug!(%error, path = %self.path.display(), "a log was left behind");
        }
    }
}
