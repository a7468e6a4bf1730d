//! JSON Schema for the arguments of tools: the keywords that descriptions of functions use.
//!
//! A schema is looked through once, when it is declared: a keyword that is not known here is refused, so that nothing
//! is promised and then not checked. What only describes (`title`, `description`, `default`, `format`, …) is let pass and
//! checks nothing. Patterns are of linear-time regular expressions, references lead only to `$defs` of the same schema,
//! and a check that would take too many steps fails.

mod check;
mod declared;
mod path;
mod scalar;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use crate::document::{Looks, MAX_PATTERN_BYTES, Owner, Pattern};
use crate::limits::format_bytes;
use crate::shown;

/// What one pattern may take once it is built: some eighty `\w`, or sixty thousand letters. Matching takes the longer the
/// more there is of it.
const MAX_EACH: u64 = 8 << 20;

/// Bytes of a pattern. One that lists names is long and takes little.
const MAX_PATTERN: usize = 16 << 10;

/// What reading patterns may take: a quarter of a second. Sixty classes like `[b-\u{10ffff}]`, where patterns ignore case,
/// take as much.
const MAX_READING: u64 = 1 << 26;

/// Comparisons that a check may take at once, while others wait: some milliseconds.
const QUICK: usize = 10_000;

/// A schema that can be checked against. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema {
    root: Arc<Value>,
    /// Built when they are first asked, and kept built as long as there is room for those of everybody.
    patterns: Arc<HashMap<String, Pattern>>,
    /// Comparisons for each part of a value; `None` where that cannot be told from the schema.
    width: Option<usize>,
}

/// What reading the patterns of schemas that come in together may still take.
#[derive(Debug)]
pub struct Reading {
    left: u64,
}

impl Default for Reading {
    fn default() -> Self {
        Self { left: MAX_READING }
    }
}

impl Schema {
    /// A schema that comes in, perhaps with others.
    ///
    /// # Errors
    /// Names the place in the schema and what is wrong with it.
    pub fn new(root: Value, reading: &mut Reading) -> Result<Self, String> {
        let schema = Self::read(root, MAX_PATTERN, reading)?;
        let mut together = 0_u64;
        for (text, pattern) in schema.patterns.iter() {
            if pattern.bytes() > MAX_EACH {
                let most = format_bytes(MAX_EACH);
                return Err(format!("pattern `{}` would take more than {most}", shown(text)));
            }
            together = together.saturating_add(pattern.bytes());
        }
        if together > MAX_PATTERN_BYTES {
            let most = format_bytes(MAX_PATTERN_BYTES);
            return Err(format!("patterns would take more than {most} together"));
        }
        Ok(schema)
    }

    /// A schema that came in before. How long its patterns are and what they take was judged then, as it was judged then.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn kept(root: Value) -> Result<Self, String> {
        Self::read(root, usize::MAX, &mut Reading { left: u64::MAX })
    }

    /// As far as it is quickly told: all but what patterns take.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn look_at(root: &Value, looks: &mut Looks) -> Result<(), String> {
        declared::look_at(root, looks)
    }

    fn read(root: Value, longest: usize, reading: &mut Reading) -> Result<Self, String> {
        let patterns = declared::patterns(&root, longest, reading)?;
        let owner = Owner::default();
        let patterns: HashMap<_, _> =
            patterns.into_iter().map(|(text, pattern)| (text, pattern.owned_by(owner))).collect();
        let width = width(&root).filter(|_| patterns.values().all(|pattern| pattern.bytes() == 0));
        Ok(Self { root: Arc::new(root), patterns: Arc::new(patterns), width })
    }

    /// Whether checking a value of so many bytes may take long: patterns may have to be built for it, or much be compared.
    #[must_use]
    pub fn takes_long(&self, bytes: usize) -> bool {
        self.width.is_none_or(|width| width.saturating_mul(bytes) > QUICK)
    }

    /// # Errors
    /// Names the first place in the value that does not fit, and why.
    pub fn check(&self, value: &Value) -> Result<(), String> {
        check::check(self, value)
    }

    #[must_use]
    pub fn as_value(&self) -> &Value {
        &self.root
    }
}

/// What a reference means; only whole schemas below `$defs` and `definitions`, or the schema itself, can be meant.
fn referred<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    if reference == "#" {
        return Some(root);
    }
    let name =
        ["#/$defs/", "#/definitions/"].iter().find_map(|place| reference.strip_prefix(place))?;
    let plain = !name.is_empty() && !name.contains('/');
    plain.then(|| root.pointer(&reference[1..])).flatten()
}

/// How much each part of a value may be compared with: `None` where something is referred to again, or parts of the value are
/// compared with each other.
fn width(schema: &Value) -> Option<usize> {
    let sum = |sum: usize, part: &Value| Some(sum + width(part)?);
    match schema {
        Value::Object(parts)
            if ["$ref", "uniqueItems"].iter().any(|word| parts.contains_key(*word)) =>
        {
            None
        }
        Value::Object(parts) => parts.values().try_fold(1, sum),
        Value::Array(parts) => parts.iter().try_fold(1, sum),
        _ => Some(1),
    }
}
