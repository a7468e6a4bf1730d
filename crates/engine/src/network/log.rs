//! The network log of a sandbox: what it wanted to reach and what came of it, one JSON object per line.
//!
//! It is in two parts of limited size, `current` and `previous`; when the current one is full it takes the place of the
//! previous one. It stays when the sandbox ends, until records of that time are removed.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Seek, SeekFrom, Write};
use std::net::IpAddr;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};

use belljar_egress::Owner;
use belljar_policy::{ProcessId, SandboxId};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use crate::time::{from_ms, to_ms};
use crate::{Error, Result};

/// A part is never longer than this and one entry.
const MAX_PART: u64 = 4 << 20;
/// Texts that a sandbox chooses.
const MAX_TEXT: usize = 1024;
/// Entries on their way to the disk.
const QUEUE: usize = 4096;
/// Entries on their way to a reader.
const AHEAD: usize = 64;
/// Files that stay open for the next entry.
const OPEN_FILES: usize = 64;
/// What another process writes is seen this late at most.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkEntry {
    pub at: SystemTime,
    /// `flow`, `dns` or `request`.
    pub stage: String,
    pub transport: String,
    pub host: Option<String>,
    pub address: Option<IpAddr>,
    pub port: u16,
    pub sni: Option<String>,
    pub method: Option<String>,
    pub path: Option<String>,
    pub rule: Option<String>,
    pub denied: bool,
    pub reason: String,
    pub bytes_up: u64,
    pub bytes_down: u64,
    pub duration: Duration,
    /// Who inside had the connection, where that is known: a hint that comes from inside.
    pub owner: Option<Owner>,
}

/// Which entries are meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetworkQuery {
    /// Only what was denied.
    pub denied: bool,
    /// Only the last so many.
    pub last: Option<u32>,
    /// Then new ones as they come, without end.
    pub follow: bool,
}

/// Entries, oldest first.
#[derive(Debug)]
pub struct NetworkLog {
    entries: mpsc::Receiver<io::Result<NetworkEntry>>,
    path: PathBuf,
}

impl NetworkLog {
    /// The next entry; `None` at the end.
    pub async fn next(&mut self) -> Result<Option<NetworkEntry>> {
        let failed = |error| Error::state("read", &self.path, error);
        self.entries.recv().await.transpose().map_err(failed)
    }
}

/// The logs of all sandboxes.
pub(crate) struct Logs {
    directory: PathBuf,
    queue: SyncSender<(SandboxId, NetworkEntry)>,
    /// Entries that were ever queued, and how many of them have been written.
    queued: Arc<AtomicU64>,
    written: watch::Receiver<u64>,
}

impl Logs {
    pub(crate) fn new(directory: PathBuf) -> Self {
        let (queue, entries) = sync_channel(QUEUE);
        let (written, receiver) = watch::channel(0);
        let place = directory.clone();
        let write =
            move || Pen { directory: place, files: VecDeque::new() }.write(&entries, &written);
        if let Err(error) = std::thread::Builder::new().name("network-log".to_owned()).spawn(write)
        {
            tracing::warn!(%error, "network logs are not written");
        }
        Self { directory, queue, queued: Arc::default(), written: receiver }
    }

    /// Adds an entry. Where the disk is slower than the sandboxes, entries are left out.
    pub(crate) fn write(&self, id: &SandboxId, entry: NetworkEntry) {
        if self.queue.try_send((id.clone(), entry)).is_ok() {
            self.queued.fetch_add(1, Ordering::Release);
        }
    }

    /// `late`: how many entries are not even queued, because it is not known yet whose they are.
    pub(crate) fn read(
        &self,
        id: &SandboxId,
        query: NetworkQuery,
        late: Option<watch::Receiver<usize>>,
    ) -> NetworkLog {
        let path = self.directory.join(id.as_str());
        let (sender, entries) = mpsc::channel(AHEAD);
        let cursor = Cursor::new(path.clone(), query);
        let (queued, mut written) = (Arc::clone(&self.queued), self.written.clone());
        tokio::spawn(async move {
            // What was decided before the question belongs to the answer, unless somebody or the disk hangs.
            let _ = tokio::time::timeout(LOOK_AGAIN, async {
                if let Some(mut late) = late {
                    let _ = late.wait_for(|late| *late == 0).await;
                }
                let queued = queued.load(Ordering::Acquire);
                let _ = written.wait_for(|written| *written >= queued).await;
            })
            .await;
            produce(cursor, written, sender).await;
        });
        NetworkLog { entries, path }
    }

    /// Removes the logs that nothing was added to for so long.
    pub(crate) fn prune(&self, kept: Duration) {
        let Some(before) = SystemTime::now().checked_sub(kept) else { return };
        for entry in fs::read_dir(&self.directory).into_iter().flatten().flatten() {
            let changed =
                entry.path().join("current").metadata().and_then(|known| known.modified());
            if changed.is_ok_and(|changed| changed < before) {
                let _ = fs::remove_dir_all(entry.path());
            }
        }
    }
}

/// The thread that writes.
struct Pen {
    directory: PathBuf,
    /// Used last comes last.
    files: VecDeque<(SandboxId, File, u64)>,
}

impl Pen {
    fn write(
        mut self,
        entries: &Receiver<(SandboxId, NetworkEntry)>,
        written: &watch::Sender<u64>,
    ) {
        let mut failed = HashMap::<SandboxId, ()>::new();
        while let Ok((id, entry)) = entries.recv() {
            if let Err(error) = self.add(&id, &entry)
                && failed.insert(id.clone(), ()).is_none()
            {
                tracing::warn!(%error, sandbox = %id, "a network log was not written");
            }
            written.send_modify(|count| *count += 1);
        }
    }

    fn add(&mut self, id: &SandboxId, entry: &NetworkEntry) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Line::from(entry))?;
        line.push(b'\n');
        let known = self.files.iter().position(|(known, ..)| known == id);
        let (id, mut file, mut length) = match known.and_then(|at| self.files.remove(at)) {
            Some(open) => open,
            None => {
                let file = open(&self.directory.join(id.as_str()))?;
                let length = file.metadata()?.size();
                (id.clone(), file, length)
            }
        };
        if length > MAX_PART {
            let directory = self.directory.join(id.as_str());
            fs::rename(directory.join("current"), directory.join("previous"))?;
            file = open(&directory)?;
            length = 0;
        }
        file.write_all(&line)?; // one write: a reader never sees half an entry of a living writer
        length += line.len() as u64;
        if self.files.len() >= OPEN_FILES {
            self.files.pop_front();
        }
        self.files.push_back((id, file, length));
        Ok(())
    }
}

fn open(directory: &Path) -> io::Result<File> {
    fs::DirBuilder::new().recursive(true).create(directory)?;
    OpenOptions::new().create(true).append(true).mode(0o600).open(directory.join("current"))
}

type Sender = mpsc::Sender<io::Result<NetworkEntry>>;

async fn produce(mut cursor: Cursor, mut written: watch::Receiver<u64>, sender: Sender) {
    let follow = cursor.query.follow;
    loop {
        written.borrow_and_update();
        let to = sender.clone();
        let read = move || match cursor.read(&to) {
            Ok(()) => Some(cursor),
            Err(error) => {
                let _ = to.blocking_send(Err(error));
                None
            }
        };
        match tokio::task::spawn_blocking(read).await {
            Ok(Some(next)) if follow => cursor = next,
            _ => return,
        }
        tokio::select! {
            () = sender.closed() => return,
            _ = tokio::time::timeout(LOOK_AGAIN, written.changed()) => {}
        }
    }
}

/// How far a reader has come.
struct Cursor {
    directory: PathBuf,
    query: NetworkQuery,
    /// The part that is being read, by its inode, and how far.
    part: Option<(u64, u64)>,
}

impl Cursor {
    fn new(directory: PathBuf, query: NetworkQuery) -> Self {
        Self { directory, query, part: None }
    }

    /// Gives everything that is new.
    fn read(&mut self, to: &Sender) -> io::Result<()> {
        let mut found = VecDeque::new();
        let last = self.query.last.take().map(|last| last as usize);
        for (file, from) in self.parts()? {
            let inode = file.metadata()?.ino();
            let mut lines = BufReader::new(file);
            let mut at = lines.seek(SeekFrom::Start(from))?;
            let mut line = Vec::new();
            loop {
                line.clear();
                let length = lines.read_until(b'\n', &mut line)? as u64;
                if length == 0 || line.last() != Some(&b'\n') {
                    break;
                }
                at += length;
                let Ok(entry) = serde_json::from_slice::<Line>(&line).map(NetworkEntry::from)
                else {
                    continue;
                };
                if self.query.denied && !entry.denied {
                    continue;
                }
                let Some(last) = last else {
                    if to.blocking_send(Ok(entry)).is_err() {
                        return Ok(());
                    }
                    continue;
                };
                found.push_back(entry);
                if found.len() > last {
                    found.pop_front();
                }
            }
            self.part = Some((inode, at));
        }
        for entry in found {
            if to.blocking_send(Ok(entry)).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// The parts that have not been read to their end, oldest first, and from where on.
    fn parts(&self) -> io::Result<Vec<(File, u64)>> {
        let mut parts = Vec::new();
        for name in ["previous", "current"] {
            match File::open(self.directory.join(name)) {
                Ok(file) => parts.push((file.metadata()?.ino(), file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let Some((read, to)) = self.part else {
            return Ok(parts.into_iter().map(|(_, file)| (file, 0)).collect());
        };
        // A part that was renamed is still the same; one that is gone was overtaken.
        let known = parts.iter().position(|(inode, _)| *inode == read);
        let rest = parts.into_iter().skip(known.unwrap_or(0));
        Ok(rest.map(|(inode, file)| (file, if inode == read { to } else { 0 })).collect())
    }
}

/// An entry as it is in the file.
#[derive(Serialize, Deserialize)]
struct Line {
    time: i64,
    stage: String,
    transport: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    port: u16,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sni: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    method: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rule: Option<String>,
    denied: bool,
    reason: String,
    bytes_up: u64,
    bytes_down: u64,
    duration_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    program: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    process: Option<ProcessId>,
}

impl From<&NetworkEntry> for Line {
    fn from(entry: &NetworkEntry) -> Self {
        let text = |text: &Option<String>| text.as_deref().map(cut);
        Self {
            time: to_ms(entry.at),
            stage: entry.stage.clone(),
            transport: entry.transport.clone(),
            host: text(&entry.host),
            address: entry.address,
            port: entry.port,
            sni: text(&entry.sni),
            method: text(&entry.method),
            path: text(&entry.path),
            rule: text(&entry.rule),
            denied: entry.denied,
            reason: entry.reason.clone(),
            bytes_up: entry.bytes_up,
            bytes_down: entry.bytes_down,
            duration_us: u64::try_from(entry.duration.as_micros()).unwrap_or(u64::MAX),
            pid: entry.owner.as_ref().map(|owner| owner.pid),
            program: entry.owner.as_ref().map(|owner| cut(&owner.program)),
            process: entry.owner.as_ref().and_then(|owner| owner.process.clone()),
        }
    }
}

impl From<Line> for NetworkEntry {
    fn from(line: Line) -> Self {
        Self {
            at: from_ms(line.time),
            stage: line.stage,
            transport: line.transport,
            host: line.host,
            address: line.address,
            port: line.port,
            sni: line.sni,
            method: line.method,
            path: line.path,
            rule: line.rule,
            denied: line.denied,
            reason: line.reason,
            bytes_up: line.bytes_up,
            bytes_down: line.bytes_down,
            duration: Duration::from_micros(line.duration_us),
            owner: line.pid.map(|pid| Owner {
                pid,
                program: line.program.unwrap_or_default(),
                process: line.process,
            }),
        }
    }
}

fn cut(text: &str) -> String {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|at| text.is_char_boundary(*at));
    text[..end.unwrap_or(0)].to_owned()
}

#[cfg(test)]
mod tests;
