//! A document as text says it: values with the place where each was written.

use std::borrow::Cow;

use super::Refusal;
use crate::document::value::FEW;

/// Longer documents are refused before they are read.
pub const MAX_BYTES: usize = 8 * 1024 * 1024;
/// Lists and maps within each other.
pub const MAX_DEPTH: usize = 32;
/// Values in one document, aliases counted as often as they are used, and what has an anchor once more.
pub const MAX_NODES: usize = 1_000_000;
/// Bytes of names and texts in one document, counted as its values are. Without anchors no document has as many: of what can
/// be escaped, the least favourable takes two bytes for three.
pub(crate) const MAX_TEXT: usize = 2 * MAX_BYTES;

/// Where something is written: both count from one, columns in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) line: u32,
    pub(crate) column: u32,
}

#[derive(Clone, Debug)]
pub(crate) struct Node<'a> {
    pub(crate) position: Position,
    pub(crate) content: Content<'a>,
}

#[derive(Clone, Debug)]
pub(crate) enum Content<'a> {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Cow<'a, str>),
    List(Vec<Node<'a>>),
    Map(Vec<Entry<'a>>),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) key: Cow<'a, str>,
    pub(crate) position: Position,
    pub(crate) value: Node<'a>,
}

impl Position {
    pub(crate) fn new(line: usize, column: usize) -> Self {
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Self { line: narrow(line), column: narrow(column) }
    }
}

/// Adds an entry; the same key twice is refused, because readers differ in which one counts.
pub(crate) fn push_entry<'a>(
    entries: &mut Vec<Entry<'a>>,
    seen: &mut Seen<'a>,
    entry: Entry<'a>,
) -> Result<(), Refusal> {
    if !seen.insert(entries, &entry) {
        let message = format!("the field `{}` is written twice", crate::shown(&entry.key));
        return Err(Refusal::new(entry.position, message, "keep one of the two"));
    }
    entries.push(entry);
    Ok(())
}

/// The keys of one map. Most maps have a handful, for which looking is faster than hashing.
#[derive(Default)]
pub(crate) struct Seen<'a>(Option<std::collections::HashSet<Cow<'a, str>>>);

impl<'a> Seen<'a> {
    /// Whether no entry so far has that key.
    pub(crate) fn insert(&mut self, entries: &[Entry<'a>], new: &Entry<'a>) -> bool {
        if entries.len() < FEW {
            return entries.iter().all(|entry| entry.key != new.key);
        }
        let keys =
            self.0.get_or_insert_with(|| entries.iter().map(|entry| entry.key.clone()).collect());
        keys.insert(new.key.clone())
    }
}
