//! The thread that writes. It begins with the first entry, so that a command that records nothing has none.

use std::collections::BTreeMap;
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::Thread;
use std::time::{Duration, Instant};

use tokio::sync::{oneshot, watch};

use super::files::{Appender, Place};
use super::record::{AuditEntry, Timed};
use crate::time::now_ms;

/// Entries that wait for the disk. Whoever has one more waits too.
const QUEUE: usize = 4096;

/// Written at once.
const BATCH: usize = 256;

/// The shortest time from one batch to the next: where entries come faster, being woken for each would take longer than
/// writing it.
const GATHER: Duration = Duration::from_millis(5);

/// The log itself, and what it says where records are missing.
pub(super) const SELF: &str = "belljar";
pub(super) const LOST: &str = "audit.lost";

/// What was written survives a loss of power after this time.
const DURABLE_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Writer {
    place: Place,
    /// `None` inside: no thread can be had.
    queue: OnceLock<Option<(SyncSender<Message>, Thread)>>,
    written: watch::Sender<u64>,
}

#[derive(Debug)]
enum Message {
    Entry(Timed),
    Flush { durable: bool, done: oneshot::Sender<()> },
}

impl Writer {
    pub(super) fn new(place: Place) -> (Self, watch::Receiver<u64>) {
        let (written, changes) = watch::channel(0);
        (Self { place, queue: OnceLock::new(), written }, changes)
    }

    pub(super) fn write(&self, timed: Timed) {
        // The thread ends only when this queue is gone, so sending fails only where there is none.
        if let Some((queue, _)) = self.queue.get_or_init(|| self.begin()) {
            let _ = queue.send(Message::Entry(timed));
        }
    }

    pub(super) async fn flush(&self, durable: bool) {
        let Some(Some((queue, thread))) = self.queue.get() else { return };
        let (done, flushed) = oneshot::channel();
        if queue.send(Message::Flush { durable, done }).is_ok() {
            thread.unpark();
            let _ = flushed.await;
        }
    }

    fn begin(&self) -> Option<(SyncSender<Message>, Thread)> {
        let (sender, queue) = sync_channel(QUEUE);
        let state = State {
            appender: Appender::new(self.place.clone()),
            written: self.written.clone(),
            lost: 0,
            appended: None,
            synced: Instant::now(),
        };
        let thread = std::thread::Builder::new().name("audit".to_owned());
        match thread.spawn(move || state.run(&queue)) {
            Ok(begun) => Some((sender, begun.thread().clone())),
            Err(error) => {
                tracing::error!(%error, "there is no audit log: no thread could be started");
                None
            }
        }
    }
}

struct State {
    appender: Appender,
    written: watch::Sender<u64>,
    /// Entries that could not be written.
    lost: u64,
    appended: Option<Instant>,
    synced: Instant,
}

impl State {
    fn run(mut self, queue: &Receiver<Message>) {
        while let Some(first) = self.next(queue) {
            if let (Message::Entry(_), Some(appended)) = (&first, self.appended) {
                // Whoever waits for it ends this.
                std::thread::park_timeout(GATHER.saturating_sub(appended.elapsed()));
            }
            let (mut batch, mut flush) = (Vec::new(), None);
            let mut next = Some(first);
            while let Some(message) = next {
                match message {
                    Message::Entry(timed) => batch.push(timed),
                    Message::Flush { durable, done } => {
                        flush = Some((durable, done));
                        break;
                    }
                }
                next = if batch.len() < BATCH { queue.try_recv().ok() } else { None };
            }
            self.append(batch);
            let durable = flush.as_ref().is_some_and(|(durable, _)| *durable);
            if durable || self.synced.elapsed() >= DURABLE_AFTER {
                self.sync();
            }
            if let Some((_, done)) = flush {
                let _ = done.send(());
            }
        }
        self.sync();
    }

    /// The next message; what was written is made durable while there is none.
    fn next(&mut self, queue: &Receiver<Message>) -> Option<Message> {
        while self.appender.is_dirty() {
            match queue.recv_timeout(DURABLE_AFTER.saturating_sub(self.synced.elapsed())) {
                Ok(message) => return Some(message),
                Err(RecvTimeoutError::Timeout) => self.sync(),
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
        queue.recv().ok()
    }

    fn append(&mut self, mut batch: Vec<Timed>) {
        if batch.is_empty() {
            return;
        }
        // Where there is more than a batch, nobody need be woken for it.
        self.appended = (batch.len() < BATCH).then(Instant::now);
        let entries = batch.len() as u64;
        if self.lost > 0 {
            batch.insert(0, lost(self.lost));
        }
        match self.appender.append(&batch) {
            Ok(()) => {
                self.lost = 0;
                self.written.send_modify(|count| *count += 1);
            }
            Err(error) => {
                // Once, not for every entry.
                if self.lost == 0 {
                    tracing::error!(%error, "the audit log cannot be written");
                }
                self.lost += entries;
            }
        }
    }

    fn sync(&mut self) {
        self.synced = Instant::now();
        if let Err(error) = self.appender.sync() {
            tracing::error!(%error, "the audit log may not survive a loss of power");
        }
    }
}

fn lost(count: u64) -> Timed {
    let entry = AuditEntry {
        actor: SELF.to_owned(),
        action: LOST.to_owned(),
        outcome: belljar_codes::Code::StateFailed.as_str().to_owned(),
        detail: BTreeMap::from([("records".to_owned(), count.to_string())]),
        ..AuditEntry::default()
    };
    Timed { entry, time: now_ms() }
}
