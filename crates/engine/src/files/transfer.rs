//! Contents of files on their way in and out, in constant memory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use belljar_protocol::MAX_CHUNK;
use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::{self, Data, change};

use super::unexpected;
use crate::Result;
use crate::agent::{AgentError, Stream, WINDOW};

/// The contents of a file, piece by piece.
#[derive(Debug)]
pub struct FileReader {
    /// `None` at the end.
    stream: Option<Stream>,
    received: u64,
}

impl FileReader {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream: Some(stream), received: 0 }
    }

    pub(super) fn empty() -> Self {
        Self { stream: None, received: 0 }
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let Some(stream) = &self.stream else { return Ok(None) };
            match stream.answer().await.map_err(|error| error.for_file("read"))? {
                Body::Data(Data { data, end }) => {
                    self.received += data.len() as u64;
                    if end {
                        self.stream = None;
                    } else {
                        // The channel means nothing for files.
                        stream.acknowledge(0, self.received)?;
                    }
                    if !data.is_empty() {
                        return Ok(Some(data));
                    }
                }
                Body::Done(_) => self.stream = None,
                _ => return Err(unexpected()),
            }
        }
    }
}

/// A file that is being written. Dropping it before [`FileWriter::finish`] leaves what has been written.
#[derive(Debug)]
pub struct FileWriter {
    stream: Stream,
    sent: u64,
}

impl FileWriter {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, sent: 0 }
    }

    /// Sends more contents, waiting while the sandbox does not take them.
    pub async fn write(&mut self, data: &[u8]) -> Result<()> {
        for piece in data.chunks(MAX_CHUNK) {
            let end = self.sent + piece.len() as u64;
            let taken = end.saturating_sub(WINDOW as u64);
            tokio::select! {
                acknowledged = self.stream.acknowledged(taken) => {
                    acknowledged.map_err(|error| error.for_file("write"))?;
                }
                // Nothing but a failure comes before the end: a full disk, for example.
                answer = self.stream.answer() => return Err(early(answer)),
            }
            let data = Data { data: piece.to_vec(), end: false };
            self.stream.send(Body::Data(data)).await?;
            self.sent = end;
        }
        Ok(())
    }

    /// Ends the file and returns its size.
    pub async fn finish(self) -> Result<u64> {
        self.stream.post(Body::Data(Data { data: Vec::new(), end: true }))?;
        match self.stream.answer().await {
            Ok(Body::Done(done)) => Ok(done.size),
            other => Err(early(other)),
        }
    }
}

fn early(answer: Result<Body, AgentError>) -> crate::Error {
    match answer {
        Ok(_) => unexpected(),
        Err(error) => error.for_file("write"),
    }
}

/// Something that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WatchEvent {
    Created(PathBuf),
    Modified(PathBuf),
    Removed(PathBuf),
    Moved(PathBuf),
    /// Events were lost; list again.
    Overflow,
}

/// A watch on a file or directory; ends when dropped.
#[derive(Debug)]
pub struct FileWatch {
    stream: Stream,
}

impl FileWatch {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream }
    }

    /// The next change.
    pub async fn next(&mut self) -> Result<WatchEvent> {
        match self.stream.answer().await.map_err(|error| error.for_file("watch"))? {
            Body::Change(change) => {
                let path = PathBuf::from(OsString::from_vec(change.path.clone()));
                Ok(match change.what() {
                    change::What::Created => WatchEvent::Created(path),
                    change::What::Modified => WatchEvent::Modified(path),
                    change::What::Removed => WatchEvent::Removed(path),
                    change::What::Moved => WatchEvent::Moved(path),
                    change::What::Overflow => WatchEvent::Overflow,
                })
            }
            _ => Err(unexpected()),
        }
    }
}

impl Drop for FileWatch {
    fn drop(&mut self) {
        // On a connection that has ended the watch has ended too.
        let _ = self.stream.post(Body::Cancel(v1::Cancel::default()));
    }
}
