//! One record of the audit log, and the line it is written as.
//!
//! A line is a JSON object whose last two members are `prev`, the hash of the record before it, and `hash`, the
//! SHA-256 of the line's bytes up to and without `,"hash"`. Whoever checks needs no canonical form but these bytes.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::plan::hex;
use crate::time::from_ms;

/// Stands for the record before the first.
pub(super) const NO_HASH: &str = "0000000000000000000000000000000000000000000000000000000000000000";

/// A line is never longer than this; a longer one was not written by us.
pub(super) const MAX_LINE: usize = 128 << 10;

/// Names and numbers.
const MAX_WORD: usize = 256;
/// Values in `detail`, which callers may choose.
const MAX_VALUE: usize = 1024;
/// As many as a network decision has, and what the log adds to it.
const MAX_DETAILS: usize = 16;

/// How much longer a text may get by being written as JSON. JSON in a text, which is mostly quotes, stays whole; what is
/// made of control characters, each of which takes six bytes, does not.
const MAX_GROWTH: usize = 2;

/// Something that was done, or refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AuditEntry {
    /// Who: `uid:0`, `key:…`, `token:…`, `sandbox:…`.
    pub actor: String,
    pub tenant: String,
    /// What, such as `sandbox.create`.
    pub action: String,
    pub sandbox: Option<String>,
    pub process: Option<String>,
    /// `ok`, or the code of the failure.
    pub outcome: String,
    pub detail: BTreeMap<String, String>,
    pub request_id: String,
}

/// An entry with its place in the chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditRecord {
    /// From 1 on, without gaps.
    pub seq: u64,
    pub at: SystemTime,
    pub entry: AuditEntry,
    /// Of the record before this one, in hexadecimal.
    pub previous: String,
    /// Of this record and, through `previous`, of all before it.
    pub hash: String,
}

/// An entry and when it came.
#[derive(Debug)]
pub(super) struct Timed {
    pub(super) entry: AuditEntry,
    /// Milliseconds since 1970.
    pub(super) time: i64,
}

#[derive(Serialize)]
struct Out<'a> {
    seq: u64,
    time: i64,
    actor: &'a str,
    tenant: &'a str,
    action: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    sandbox: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    process: Option<&'a str>,
    outcome: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    detail: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "str::is_empty")]
    request_id: &'a str,
    prev: &'a str,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct In {
    seq: u64,
    time: i64,
    actor: String,
    tenant: String,
    action: String,
    sandbox: Option<String>,
    process: Option<String>,
    outcome: String,
    #[serde(default)]
    detail: BTreeMap<String, String>,
    #[serde(default)]
    request_id: String,
    prev: String,
    hash: String,
}

/// Appends the line of an entry to `out` and returns its hash.
pub(super) fn encode(timed: &Timed, seq: u64, previous: &str, out: &mut Vec<u8>) -> String {
    let entry = &timed.entry;
    let detail = entry.detail.iter().take(MAX_DETAILS);
    let line = Out {
        seq,
        time: timed.time,
        actor: cut(&entry.actor, MAX_WORD),
        tenant: cut(&entry.tenant, MAX_WORD),
        action: cut(&entry.action, MAX_WORD),
        sandbox: entry.sandbox.as_deref().map(|text| cut(text, MAX_WORD)),
        process: entry.process.as_deref().map(|text| cut(text, MAX_WORD)),
        outcome: cut(&entry.outcome, MAX_WORD),
        detail: detail.map(|(key, value)| (cut(key, MAX_WORD), cut(value, MAX_VALUE))).collect(),
        request_id: cut(&entry.request_id, MAX_WORD),
        prev: previous,
    };
    let mut bytes = serde_json::to_vec(&line).expect("texts and numbers are always JSON");
    bytes.pop(); // the closing brace: the hash goes in front of it
    let hash = hex(&Sha256::digest(&bytes));
    out.extend(bytes);
    out.extend(format!(",\"hash\":\"{hash}\"}}\n").into_bytes());
    hash
}

/// The record of a line without its newline, if its own hash is right; otherwise what is wrong with it.
pub(super) fn decode(line: &[u8]) -> Result<AuditRecord, &'static str> {
    // `,"hash":"` + 64 + `"}`
    const TAIL: usize = 9 + 64 + 2;
    let read: In = serde_json::from_slice(line).map_err(|_| "it is not a record")?;
    let body = line.len().checked_sub(TAIL).and_then(|at| line.get(..at));
    if body.map(|body| hex(&Sha256::digest(body))).as_ref() != Some(&read.hash) {
        return Err("it was changed after it was written");
    }
    Ok(AuditRecord {
        seq: read.seq,
        at: from_ms(read.time),
        entry: AuditEntry {
            actor: read.actor,
            tenant: read.tenant,
            action: read.action,
            sandbox: read.sandbox,
            process: read.process,
            outcome: read.outcome,
            detail: read.detail,
            request_id: read.request_id,
        },
        previous: read.prev,
        hash: read.hash,
    })
}

/// The longest beginning of `text` that fits, as it is and as it is written.
fn cut(text: &str, max: usize) -> &str {
    let mut written = 0;
    for (at, c) in text.char_indices() {
        written += written_length(c);
        if at + c.len_utf8() > max || written > MAX_GROWTH * max {
            return &text[..at];
        }
    }
    text
}

/// In a string of JSON.
const fn written_length(c: char) -> usize {
    match c {
        '"' | '\\' | '\u{8}' | '\t' | '\n' | '\u{c}' | '\r' => 2,
        '\0'..='\u{1f}' => 6,
        c => c.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timed(detail: &str) -> Timed {
        let entry = AuditEntry {
            actor: "uid:0".to_owned(),
            action: "sandbox.create".to_owned(),
            outcome: "ok".to_owned(),
            detail: BTreeMap::from([("name".to_owned(), detail.to_owned())]),
            ..AuditEntry::default()
        };
        Timed { entry, time: 1_700_000_000_000 }
    }

    #[test]
    fn a_line_reads_back_and_any_changed_byte_shows() {
        let mut line = Vec::new();
        let hash = encode(&timed("a \"quoted\" näme\n"), 7, NO_HASH, &mut line);
        let line = line.strip_suffix(b"\n").unwrap();
        let record = decode(line).unwrap();
        assert_eq!((record.seq, &record.hash), (7, &hash));
        assert_eq!(record.entry, timed("a \"quoted\" näme\n").entry);
        for at in 0..line.len() {
            let mut changed = line.to_vec();
            changed[at] ^= 1;
            assert!(decode(&changed).is_err(), "byte {at}");
        }
    }

    #[test]
    fn texts_are_cut_by_the_room_they_take() {
        let check = |text: &str, max: usize| {
            let written = serde_json::to_string(cut(text, max)).unwrap().len() - 2;
            assert!(cut(text, max).len() <= max && written <= 2 * max, "{text:?}: {written}");
            let lengths: usize = cut(text, max).chars().map(written_length).sum();
            assert_eq!(lengths, written, "{text:?}");
        };
        for c in (0..0x2ff).filter_map(char::from_u32) {
            check(&c.to_string().repeat(100), 64);
        }
        assert_eq!(cut(&"\u{1}".repeat(100), 64).len(), 128 / 6);
        // What is JSON already stays whole.
        let json = "\"\\".repeat(32);
        assert_eq!(cut(&json, 64), json);
        assert_eq!(cut("aä", 2), "a");
    }

    #[test]
    fn a_callers_choice_of_characters_does_not_make_a_record_long() {
        let mut timed = timed("");
        let mut line = Vec::new();
        for name in ["from", "to", "target"] {
            timed.entry.detail.insert(name.to_owned(), "\u{1}".repeat(4 << 10));
        }
        encode(&timed, 1, NO_HASH, &mut line);
        assert!(line.len() < 7 << 10, "{}", line.len());
    }

    #[test]
    fn lines_are_bounded_whatever_they_are_made_of() {
        let mut timed = timed("");
        let huge = "\u{1}".repeat(4 << 10);
        for number in 0..100 {
            timed.entry.detail.insert(format!("{number}{huge}"), huge.clone());
        }
        timed.entry.actor = huge;
        let mut line = Vec::new();
        encode(&timed, 1, NO_HASH, &mut line);
        assert!(line.len() <= MAX_LINE, "{}", line.len());
        assert!(decode(line.strip_suffix(b"\n").unwrap()).is_ok());
    }
}
