//! Which processes this engine attends to, and what their followers are told.
//!
//! Attending is the work of one task per process (see `pump`). Everybody else in this program, however many, finds the
//! process here: to act on it, to be woken when its log grows, to learn of its end. The latest records are shared while
//! somebody follows, so that many followers of a noisy process cost one copy and no file access; one who falls behind
//! reads the log instead. Memory: at most [`TAIL_BYTES`] per process, and nothing where nobody follows.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use belljar_policy::{ProcessId, SandboxId};
use tokio::sync::watch;

use super::ProcessControl;
use crate::log::{Offsets, Position, Record};

/// What is kept for followers who are nearly up to date.
const TAIL_BYTES: usize = 256 << 10;
const TAIL_RECORDS: usize = 1024;

/// The processes of this engine.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    /// `None`: attending is about to begin.
    known: Mutex<HashMap<ProcessId, Option<Arc<Attended>>>>,
}

/// A process that this engine attends to.
#[derive(Debug)]
pub(crate) struct Attended {
    /// Where it runs.
    pub(crate) sandbox: SandboxId,
    pub(super) control: ProcessControl,
    tail: Mutex<Tail>,
    /// Records so far.
    written: watch::Sender<u64>,
    standing: watch::Sender<Standing>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Attended,
    /// Its end is in the store.
    Ended,
    /// This engine no longer attends to it, and it may go on.
    Left,
}

#[derive(Debug)]
struct Tail {
    kept: VecDeque<Kept>,
    bytes: usize,
    /// The number that the next record gets.
    next: u64,
    ends: Offsets,
}

/// A record, and where the log goes on after it.
#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) record: Record,
    pub(super) end: Option<Position>,
}

/// What came of asking for a record by its number.
pub(super) enum Next {
    Record(Kept),
    NotYet,
    /// It is only in the log.
    Lapsed,
}

/// The right to attend to a process; at most one per process and engine.
pub(super) struct Reservation {
    registry: Arc<Registry>,
    process: ProcessId,
}

/// Held by whoever attends; dropping it means leaving the process.
pub(super) struct Attendance {
    attended: Arc<Attended>,
    reservation: Reservation,
}

impl Registry {
    pub(crate) fn get(&self, process: &ProcessId) -> Option<Arc<Attended>> {
        self.lock().get(process).cloned().flatten()
    }

    /// `None` if somebody in this engine attends to the process or is about to.
    pub(super) fn reserve(self: &Arc<Self>, process: &ProcessId) -> Option<Reservation> {
        match self.lock().entry(process.clone()) {
            Entry::Occupied(_) => None,
            Entry::Vacant(entry) => {
                entry.insert(None);
                Some(Reservation { registry: Arc::clone(self), process: process.clone() })
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<ProcessId, Option<Arc<Attended>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Reservation {
    /// Attending begins; the log is written up to `ends`.
    pub(super) fn attend(
        self,
        sandbox: &SandboxId,
        control: ProcessControl,
        ends: Offsets,
    ) -> Attendance {
        let attended = Arc::new(Attended {
            sandbox: sandbox.clone(),
            control,
            tail: Mutex::new(Tail { kept: VecDeque::new(), bytes: 0, next: 0, ends }),
            written: watch::Sender::new(0),
            standing: watch::Sender::new(Standing::Attended),
        });
        self.registry.lock().insert(self.process.clone(), Some(Arc::clone(&attended)));
        Attendance { attended, reservation: self }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.registry.lock().remove(&self.process);
    }
}

impl Attendance {
    /// A record has been logged.
    pub(super) fn logged(&self, record: Record, end: Option<Position>) {
        let followed = self.attended.written.receiver_count() > 0;
        let next = self.attended.lock().push(Kept { record, end }, followed);
        self.attended.written.send_replace(next);
    }

    /// The end is in the store.
    pub(super) fn ended(self) {
        self.attended.standing.send_replace(Standing::Ended);
    }
}

impl Drop for Attendance {
    fn drop(&mut self) {
        // Whoever looks for the process from now on must not find this one, so that goes first.
        self.reservation.registry.lock().insert(self.reservation.process.clone(), None);
        self.attended.standing.send_if_modified(|standing| {
            let left = *standing == Standing::Attended;
            if left {
                *standing = Standing::Left;
            }
            left
        });
    }
}

impl Attended {
    pub(super) fn written(&self) -> watch::Receiver<u64> {
        self.written.subscribe()
    }

    pub(super) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// How far the log is written.
    pub(super) fn ends(&self) -> Offsets {
        self.lock().ends
    }

    /// The number that the next record gets.
    pub(super) fn next(&self) -> u64 {
        self.lock().next
    }

    /// Whether all records from this number on can be had with [`Self::record`].
    pub(super) fn keeps(&self, number: u64) -> bool {
        number >= self.lock().first()
    }

    pub(super) fn record(&self, number: u64) -> Next {
        let tail = self.lock();
        if number >= tail.next {
            return Next::NotYet;
        }
        let kept = number.checked_sub(tail.first()).and_then(|index| usize::try_from(index).ok());
        match kept.and_then(|index| tail.kept.get(index)) {
            Some(kept) => Next::Record(kept.clone()),
            None => Next::Lapsed,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Tail> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tail {
    fn push(&mut self, kept: Kept, followed: bool) -> u64 {
        let end = kept.record.offset + kept.record.data.len() as u64;
        self.ends.set(kept.record.channel, end);
        self.next += 1;
        if followed {
            self.bytes += kept.record.data.len();
            self.kept.push_back(kept);
        }
        while !followed || self.bytes > TAIL_BYTES || self.kept.len() > TAIL_RECORDS {
            let Some(oldest) = self.kept.pop_front() else { break };
            self.bytes -= oldest.record.data.len();
        }
        self.next
    }

    /// The number of the oldest record that is kept.
    fn first(&self) -> u64 {
        self.next - self.kept.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::log::Channel;

    fn kept(offset: u64, size: usize) -> Kept {
        let data = Bytes::from(vec![0; size]);
        Kept { record: Record { channel: Channel::Stdout, offset, data }, end: None }
    }

    #[test]
    fn the_tail_is_bounded_and_empty_where_nobody_follows() {
        let mut tail = Tail { kept: VecDeque::new(), bytes: 0, next: 0, ends: Offsets::default() };
        for index in 0..100 {
            tail.push(kept(index * 60_000, 60_000), true);
            assert!(tail.bytes <= TAIL_BYTES);
        }
        assert_eq!((tail.next, tail.first()), (100, 96));
        for index in 0..5000 {
            tail.push(kept(6_000_000 + index, 1), true);
            assert!(tail.kept.len() <= TAIL_RECORDS);
        }
        tail.push(kept(6_005_000, 1), false);
        assert_eq!((tail.kept.len(), tail.bytes, tail.first()), (0, 0, tail.next));
        assert_eq!(tail.ends.stdout, 6_005_001);
    }
}
