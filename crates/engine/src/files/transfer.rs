//! Contents of files on their way in and out, in constant memory.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use belljar_codes::Code;
use belljar_protocol::MAX_CHUNK;
use belljar_protocol::v1::frame::Body;
use belljar_protocol::v1::write_file::Mode;
use belljar_protocol::v1::{self, Data, change};

use super::partial::Partial;
use super::{WriteMode, WriteOptions, bytes, unexpected};
use crate::agent::{AgentError, Connection, Stream, WINDOW};
use crate::{Error, Result, random};

/// The contents of a file, piece by piece. Dropping it ends the reading inside.
#[derive(Debug)]
pub struct FileReader {
    /// `None` at the end.
    stream: Option<Stream>,
    received: u64,
    /// More than was asked for is never taken from inside.
    most: u64,
}

impl FileReader {
    pub(super) fn new(stream: Stream, length: Option<u64>) -> Self {
        Self { stream: Some(stream), received: 0, most: length.unwrap_or(u64::MAX) }
    }

    pub(super) fn empty() -> Self {
        Self { stream: None, received: 0, most: 0 }
    }

    /// The next piece; `None` at the end. Giving up waiting loses nothing.
    pub async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let Some(stream) = &self.stream else { return Ok(None) };
            let answer = match stream.answer().await {
                Ok(answer) => answer,
                Err(error) => {
                    self.stream = None;
                    return Err(error.for_file("read"));
                }
            };
            match answer {
                Body::Data(Data { data, end }) => {
                    self.received += data.len() as u64;
                    if self.received > self.most {
                        return Err(AgentError::breach("more contents than asked for").into());
                    }
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

impl Drop for FileReader {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            cancel(stream);
        }
    }
}

/// A file that is being written. Given up before [`FileWriter::finish`], by dropping it or with [`FileWriter::abort`],
/// it leaves nothing of a new or replaced file, and what has been written of one that is written in place.
#[derive(Debug)]
pub struct FileWriter {
    stream: Stream,
    sent: u64,
    limit: u64,
    ended: bool,
    /// What goes if this is given up.
    unfinished: Option<Partial>,
    /// What the finished file is renamed to, where it is written beside its place.
    place: Option<Vec<u8>>,
}

impl FileWriter {
    pub(super) fn open(
        connection: &Arc<Connection>,
        path: &Path,
        options: WriteOptions,
    ) -> Result<Self> {
        let path = bytes(path)?;
        let (mode, place) = match options.mode {
            WriteMode::Truncate => (Mode::Truncate, None),
            WriteMode::Append => (Mode::Append, None),
            WriteMode::CreateNew => (Mode::CreateNew, None),
            WriteMode::Replace => (Mode::CreateNew, Some(path.clone())),
        };
        let written = if place.is_some() { beside_of(&path) } else { path };
        let request = v1::WriteFile {
            path: written.clone(),
            mode: mode as i32,
            permissions: options.permissions.unwrap_or(0),
            make_parents: options.make_parents,
        };
        let stream = connection.request(Body::WriteFile(request))?;
        Ok(Self {
            stream,
            sent: 0,
            limit: options.limit.unwrap_or(u64::MAX),
            ended: false,
            unfinished: (mode == Mode::CreateNew).then(|| Partial::new(connection, written)),
            place,
        })
    }

    /// Sends more contents, waiting while the sandbox does not take them.
    pub async fn write(&mut self, data: &[u8]) -> Result<()> {
        if self.sent.saturating_add(data.len() as u64) > self.limit {
            let limit = self.limit;
            return Err(Error::new(
                Code::RequestTooLarge,
                format!("the contents are larger than {limit} bytes"),
            )
            .with_remedy("write less, or raise the limit"));
        }
        for piece in data.chunks(MAX_CHUNK) {
            let end = self.sent + piece.len() as u64;
            let taken = end.saturating_sub(WINDOW as u64);
            tokio::select! {
                acknowledged = self.stream.acknowledged(taken) => {
                    acknowledged.map_err(|error| error.for_file("write"))?;
                }
                // Nothing but a failure comes before the end: a full disk, for example.
                answer = self.stream.answer() => return Err(self.early(answer)),
            }
            let data = Data { data: piece.to_vec(), end: false };
            self.stream.send(Body::Data(data)).await?;
            self.sent = end;
        }
        Ok(())
    }

    /// Ends the file and returns its size.
    pub async fn finish(mut self) -> Result<u64> {
        self.stream.post(Body::Data(Data { data: Vec::new(), end: true }))?;
        let size = match self.stream.answer().await {
            Ok(Body::Done(done)) => done.size,
            other => return Err(self.early(other)),
        };
        self.ended = true;
        if let (Some(to), Some(partial)) = (&self.place, &self.unfinished) {
            let from = partial.path().to_vec();
            let request = v1::Move { from, to: to.clone(), replace: true };
            let asked = self.stream.connection().ask(Body::Move(request)).await;
            asked.map_err(|error| error.for_file("replace"))?;
        }
        if let Some(partial) = &mut self.unfinished {
            partial.keep();
        }
        Ok(size)
    }

    /// Gives up.
    pub fn abort(self) {
        drop(self);
    }

    fn early(&mut self, answer: Result<Body, AgentError>) -> Error {
        self.ended = true;
        match answer {
            Ok(_) => unexpected(),
            Err(error) => error.for_file("write"),
        }
    }

    /// Whether the file is known to be one that this writer made.
    fn is_ours(&self) -> bool {
        // The name beside its place is nobody else's; otherwise something must have been written.
        self.place.is_some() || {
            let acknowledged = pin!(self.stream.acknowledged(1));
            let mut context = Context::from_waker(Waker::noop());
            matches!(acknowledged.poll(&mut context), Poll::Ready(Ok(())))
        }
    }
}

impl Drop for FileWriter {
    fn drop(&mut self) {
        if !self.ended {
            cancel(&self.stream);
        }
        if !self.is_ours()
            && let Some(partial) = &mut self.unfinished
        {
            partial.keep();
        }
        // After this the unfinished file is removed, where there is one.
    }
}

/// Tells the agent that nobody waits for the rest.
fn cancel(stream: &Stream) {
    // On a connection that has ended everything has ended.
    let _ = stream.post(Body::Cancel(v1::Cancel::default()));
}

/// A name beside a path that nobody else has.
fn beside_of(path: &[u8]) -> Vec<u8> {
    let end = path.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let mut name = path.get(..end).unwrap_or_default().to_vec();
    name.extend_from_slice(b".belljar-");
    name.extend_from_slice(random::token().as_bytes());
    name
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
        cancel(&self.stream);
    }
}
