//! Reading the log: records that match, in order, and new ones as they come.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::{mpsc, watch};

use super::files::{Lines, Part, Place};
use super::record::{AuditRecord, decode};
use crate::{Error, Result};

/// Records of other processes are seen this late at most.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// Records on their way to a reader.
const AHEAD: usize = 64;

/// More than the last so many are asked for without `last`.
const MAX_LAST: usize = 10_000;

/// Which records are meant; what is `None` does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditQuery {
    /// By id.
    pub sandbox: Option<String>,
    pub actor: Option<String>,
    pub action: Option<String>,
    pub outcome: Option<String>,
    /// Of a decision: its answer.
    pub verdict: Option<String>,
    /// Of a decision: the rule that made it.
    pub rule: Option<String>,
    /// Of a decision: how the digest of the policy begins.
    pub policy: Option<String>,
    /// Not before.
    pub since: Option<SystemTime>,
    /// Before.
    pub until: Option<SystemTime>,
    /// Only the last so many, up to ten thousand.
    pub last: Option<u32>,
    /// Then new ones as they come, without end.
    pub follow: bool,
}

impl AuditQuery {
    fn matches(&self, record: &AuditRecord) -> bool {
        let entry = &record.entry;
        let is = |wanted: &Option<String>, text: &str| wanted.as_ref().is_none_or(|w| w == text);
        let detail = |wanted: &Option<String>, key: &str, fits: fn(&str, &str) -> bool| {
            let text = entry.detail.get(key);
            wanted.as_ref().is_none_or(|wanted| text.is_some_and(|text| fits(wanted, text)))
        };
        is(&self.actor, &entry.actor)
            && is(&self.action, &entry.action)
            && is(&self.outcome, &entry.outcome)
            && detail(&self.verdict, "verdict", |wanted, text| wanted == text)
            && detail(&self.rule, "rule", |wanted, text| wanted == text)
            && detail(&self.policy, "policy", |wanted, text| text.starts_with(wanted))
            && self.sandbox.as_ref().is_none_or(|id| entry.sandbox.as_ref() == Some(id))
            && self.since.is_none_or(|since| record.at >= since)
            && self.until.is_none_or(|until| record.at < until)
    }
}

/// Records of the log, oldest first. Lines that are no records are passed over; checking the log tells of them.
#[derive(Debug)]
pub struct AuditReader {
    records: mpsc::Receiver<io::Result<AuditRecord>>,
    place: Arc<Place>,
}

impl AuditReader {
    pub(super) fn new(place: Arc<Place>, query: AuditQuery, changes: watch::Receiver<u64>) -> Self {
        let (sender, records) = mpsc::channel(AHEAD);
        let cursor = Cursor { place: Arc::clone(&place), query, parts: VecDeque::new(), seq: 0 };
        tokio::spawn(produce(cursor, changes, sender));
        Self { records, place }
    }

    /// The next record; `None` at the end. May be dropped and called again without losing one.
    pub async fn next(&mut self) -> Result<Option<AuditRecord>> {
        let failed = |error| Error::state("read", &self.place.current(), error);
        self.records.recv().await.transpose().map_err(failed)
    }
}

type Sender = mpsc::Sender<io::Result<AuditRecord>>;

async fn produce(cursor: Cursor, mut changes: watch::Receiver<u64>, sender: Sender) {
    let follow = cursor.query.follow;
    changes.borrow_and_update();
    let Some(mut cursor) = blocking(cursor, &sender, Cursor::begin).await else { return };
    if !follow {
        return;
    }
    loop {
        tokio::select! {
            () = sender.closed() => return,
            _ = tokio::time::timeout(LOOK_AGAIN, changes.changed()) => {}
        }
        changes.borrow_and_update();
        match blocking(cursor, &sender, Cursor::go_on).await {
            Some(next) => cursor = next,
            None => return,
        }
    }
}

/// Reads files where that may take its time. `None` where nobody listens any more, or nothing can be read.
async fn blocking(
    mut cursor: Cursor,
    sender: &Sender,
    read: fn(&mut Cursor, &Sender) -> io::Result<bool>,
) -> Option<Cursor> {
    let sender = sender.clone();
    let done = tokio::task::spawn_blocking(move || match read(&mut cursor, &sender) {
        Ok(true) => Some(cursor),
        Ok(false) => None,
        Err(error) => {
            let _ = sender.blocking_send(Err(error));
            None
        }
    });
    done.await.ok().flatten()
}

struct Cursor {
    place: Arc<Place>,
    query: AuditQuery,
    /// Oldest first. The last one stays when it has been read: more may come in it.
    parts: VecDeque<Lines>,
    /// Everything up to this number has been seen.
    seq: u64,
}

impl Cursor {
    /// What the log has by now. `false` where nobody listens any more.
    fn begin(&mut self, sender: &Sender) -> io::Result<bool> {
        let parts = self.place.snapshot()?;
        match self.query.last {
            None => {
                self.parts = parts.into_iter().map(lines).collect();
                self.read(sender)
            }
            Some(last) => {
                for record in self.last(parts, (last as usize).min(MAX_LAST))? {
                    if sender.blocking_send(Ok(record)).is_err() {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
        }
    }

    /// What has come since.
    fn go_on(&mut self, sender: &Sender) -> io::Result<bool> {
        let parts = self.place.snapshot()?;
        let inode = self.parts.back().map(Lines::inode).transpose()?;
        let known = parts.iter().position(|part| Some(part.inode) == inode);
        for (at, part) in parts.into_iter().enumerate() {
            match (known, self.parts.back_mut()) {
                (Some(known), _) if at < known => {}
                (Some(known), Some(last)) if at == known => last.extend_to(part.length),
                _ => self.parts.push_back(lines(part)),
            }
        }
        self.read(sender)
    }

    fn read(&mut self, sender: &Sender) -> io::Result<bool> {
        while let Some(part) = self.parts.front_mut() {
            while let Some(line) = part.next_line()? {
                let Ok(record) = decode(&line) else { continue };
                if record.seq <= self.seq {
                    continue;
                }
                self.seq = record.seq;
                if self.query.matches(&record) && sender.blocking_send(Ok(record)).is_err() {
                    return Ok(false);
                }
            }
            if self.parts.len() == 1 {
                break;
            }
            self.parts.pop_front();
        }
        Ok(true)
    }

    /// The last matching records; no older file is read than is needed.
    fn last(&mut self, parts: Vec<Part>, wanted: usize) -> io::Result<Vec<AuditRecord>> {
        let mut found = VecDeque::new();
        for part in parts.into_iter().rev() {
            let mut lines = lines(part);
            let mut newest = VecDeque::new();
            while let Some(line) = lines.next_line()? {
                let Ok(record) = decode(&line) else { continue };
                self.seq = self.seq.max(record.seq);
                if self.query.matches(&record) {
                    newest.push_back(record);
                    if newest.len() + found.len() > wanted {
                        newest.pop_front();
                    }
                }
            }
            if self.parts.is_empty() {
                self.parts.push_back(lines);
            }
            newest.append(&mut found);
            found = newest;
            if found.len() >= wanted {
                break;
            }
        }
        Ok(found.into())
    }
}

fn lines(part: Part) -> Lines {
    Lines::new(part.file, 0, part.length)
}
