//! The audit log: who did what to which sandbox, with the outcome. Append-only JSON lines, each with the hash of the one
//! before it.
//!
//! - Any number of processes may write to the log of a state directory; there is one chain.
//! - Recording does not wait for the disk: entries go through a bounded queue, in order, to a thread that writes them at
//!   once. Dying loses what is still in the queue and never leaves half a record that is not repaired.
//! - What was written is made to survive a loss of power within a second, and when the log is closed.
//! - Where the disk is full, entries are lost and the next one that can be written is preceded by one that says how many.
//!
//! The chain shows changes, gaps and insertions. Somebody who may write to the state directory can cut off its end, or
//! make a whole new chain: against that, keep the last number and hash somewhere else and give them to
//! [`AuditLog::verify`].

mod denied;
mod files;
mod read;
mod record;
mod share;
#[cfg(test)]
mod tests;
mod verify;
mod writer;

use std::path::Path;
use std::sync::Arc;

use tokio::sync::watch;

use files::Place;
pub use read::{AuditQuery, AuditReader};
use record::Timed;
pub use record::{AuditEntry, AuditRecord};
use share::Shares;
pub use verify::AuditReport;
use writer::Writer;

use crate::Result;
use crate::aside::blocking;
use crate::time::now_ms;

/// The log of one state directory. Cheap to clone; all clones write through the same queue.
#[derive(Clone, Debug)]
pub struct AuditLog {
    place: Arc<Place>,
    writer: Arc<Writer>,
    shares: Arc<Shares>,
    /// Counts what was written, to wake those who follow.
    written: watch::Receiver<u64>,
}

impl AuditLog {
    /// The log of a state directory. Nothing is opened or made before something is recorded or read.
    #[must_use]
    pub fn of(state_dir: &Path) -> Self {
        Self::at(Place::new(state_dir))
    }

    fn at(place: Place) -> Self {
        let (writer, written) = Writer::new(place.clone());
        Self { place: Arc::new(place), writer: Arc::new(writer), shares: Arc::default(), written }
    }

    /// Adds an entry behind all those before it.
    pub fn record(&self, entry: AuditEntry) {
        self.writer.write(Timed { entry, time: now_ms() });
    }

    /// Returns once everything that was recorded so far is in the file and on the disk.
    pub async fn flush(&self) {
        self.writer.flush(true).await;
    }

    /// Records that match, oldest first, those of this very moment included.
    pub async fn query(&self, query: AuditQuery) -> AuditReader {
        self.writer.flush(false).await;
        AuditReader::new(Arc::clone(&self.place), query, self.written.clone())
    }

    /// Checks the whole chain. With `anchor`, the record of that number must exist and have that hash.
    ///
    /// # Errors
    /// `audit-broken`, naming the first record that is not as it was written.
    pub async fn verify(&self, anchor: Option<(u64, String)>) -> Result<AuditReport> {
        self.writer.flush(false).await;
        let place = Arc::clone(&self.place);
        let work = move || {
            let anchor = anchor.as_ref().map(|(seq, hash)| (*seq, hash.as_str()));
            verify::verify(&place, anchor)
        };
        blocking(work).await
    }
}
