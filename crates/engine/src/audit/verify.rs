//! Checking the chain.

use belljar_codes::Code;

use super::files::{Lines, Place};
use super::record::{AuditRecord, NO_HASH, decode};
use crate::{Error, Result};

/// What a check of a whole log found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditReport {
    pub records: u64,
    /// More than 1 where older records have been rotated out. 0: there are none.
    pub first_seq: u64,
    pub last_seq: u64,
    /// Kept elsewhere, it shows later whether records were cut off the end.
    pub last_hash: String,
}

/// Checks every record and the links between them. With `anchor`, the record of that number must be there and have that hash.
pub(super) fn verify(place: &Place, anchor: Option<(u64, &str)>) -> Result<AuditReport> {
    let unreadable = |error| Error::state("read", &place.current(), error);
    let parts = place.snapshot().map_err(unreadable)?;
    let files = parts.len();
    let mut report =
        AuditReport { records: 0, first_seq: 0, last_seq: 0, last_hash: NO_HASH.to_owned() };
    let mut anchored = anchor.is_none_or(|(seq, hash)| seq == 0 && hash == NO_HASH);
    for part in parts {
        let name = part.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut lines = Lines::new(part.file, 0, part.length);
        let mut number = 0u64;
        while let Some(line) = lines.next_line().map_err(unreadable)? {
            number += 1;
            let place_of = || format!("line {number} of `{name}`");
            let record =
                decode(&line).map_err(|reason| broken(report.last_seq + 1, &place_of(), reason))?;
            check_link(&report, &record, files >= place.max_old as usize)
                .map_err(|reason| broken(report.last_seq + 1, &place_of(), reason))?;
            if anchor.is_some_and(|(seq, hash)| seq == record.seq && hash == record.hash) {
                anchored = true;
            }
            if report.records == 0 {
                report.first_seq = record.seq;
            }
            report.records += 1;
            report.last_seq = record.seq;
            report.last_hash = record.hash;
        }
    }
    if let (false, Some((seq, _))) = (anchored, anchor) {
        let reason = "it is missing, or is not the one whose hash was kept";
        return Err(broken(seq, "the whole log", reason));
    }
    Ok(report)
}

/// `rotated`: there are so many files that older ones have gone in the usual way.
fn check_link(
    before: &AuditReport,
    record: &AuditRecord,
    rotated: bool,
) -> std::result::Result<(), &'static str> {
    if before.records == 0 {
        return match record.seq {
            1 if record.previous == NO_HASH => Ok(()),
            1 => Err("something was before it"),
            _ if rotated => Ok(()),
            _ => Err("what was before it is missing"),
        };
    }
    if record.seq != before.last_seq + 1 {
        return Err("what was before it is missing, or came in another order");
    }
    if record.previous != before.last_hash {
        return Err("it does not follow on the record before it");
    }
    Ok(())
}

fn broken(seq: u64, place: &str, reason: &str) -> Error {
    Error::new(Code::AuditBroken, format!("the audit log is broken at record {seq} ({place})"))
        .with_source(reason.to_owned())
        .with_remedy("keep the files as they are and find out who could write to them")
}
