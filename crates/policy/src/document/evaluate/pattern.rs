//! A compiled regular expression, bounded in what it costs.
//!
//! Matching is linear in the text. Patterns are judged when the document is read and built when first asked, since
//! most rules of a large document are never reached.

use belljar_codes::Code;
use regex_syntax::hir::{Class, Hir, HirKind};

use super::built::{Owner, Slot};
use super::reading::Form;
use super::translate::translate;
use crate::{Invalid, shown};

const MAX_PATTERN: usize = 4096;
const MAX_NESTING: u32 = 64;
/// As the library has it by itself, for patterns that nobody translated.
pub(super) const MAX_NESTING_AS_WRITTEN: u32 = 250;
/// A longer one is not looked at: its form alone takes some hundred bytes for each of its own. Nobody is let in with it.
const MAX_LOOKED_AT: usize = 64 << 10;
/// Literals, ranges and repetitions multiplied out.
const MAX_COST: u64 = 20_000;

/// A pattern whose reading takes no more is read at once; a tenth of a millisecond.
const QUICK: u64 = 1 << 15;
/// What reading patterns at once may take, for all that are looked at together: less than a tenth of a second.
const MAX_LOOKS: u64 = 1 << 24;

/// What the smallest pattern takes once it was asked. Most of it is room to match in.
const BUILT_BYTES: u64 = 64 << 10;
/// What each literal, range and repetition takes in addition; measured.
const BYTES_EACH: u64 = 128;
/// Beyond ASCII even one range is several sequences of bytes.
const BEYOND_ASCII: u64 = 8;

#[derive(Debug)]
pub(crate) struct Pattern {
    translated: String,
    /// A pattern that is plain text needs no automaton.
    literal: Option<String>,
    bytes: u64,
    built: Slot,
}

/// What looking at patterns may still take. A document has any number of them, and all are judged later.
#[derive(Debug)]
pub(crate) struct Looks {
    left: u64,
}

impl Default for Looks {
    fn default() -> Self {
        Self { left: MAX_LOOKS }
    }
}

impl Looks {
    /// Whether there is time to read all of it.
    fn admit(&mut self, form: &Form) -> bool {
        let rest = self.left.checked_sub(form.reading).filter(|_| form.reading <= QUICK);
        self.left = rest.unwrap_or(self.left);
        rest.is_some()
    }
}

impl Pattern {
    /// # Errors
    /// Where the pattern is malformed, costs too much, or needs what linear matching cannot do.
    pub(crate) fn new(pattern: &str) -> Result<Self, Invalid> {
        let (translated, form) = formed(pattern)?;
        let meaning = form.meaning(&translated).map_err(|reason| refused(pattern, reason))?;
        if Measure::COST.of(&meaning) > MAX_COST {
            return Err(refused(pattern, "costs too much: its repetitions multiply"));
        }
        Ok(Self::of(translated, &meaning))
    }

    /// As far as it is quickly told: the form of every pattern, and all of one that is read quickly.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn look_at(pattern: &str, looks: &mut Looks) -> Result<(), Invalid> {
        let (_, form) = formed(pattern)?;
        if looks.admit(&form) { Self::new(pattern).map(drop) } else { Ok(()) }
    }

    /// What reading it takes, as [`Form`] has it; 0 for one that is malformed.
    pub(crate) fn reading(pattern: &str) -> u64 {
        formed(pattern).map_or(0, |(_, form)| form.reading)
    }

    /// As the regular expressions of this program are written, not as Python's are. Its length, and what it takes, is for
    /// the caller to judge; what reading it takes comes out of `left`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn as_written(pattern: String, left: &mut u64) -> Result<Self, &'static str> {
        let form = Form::of(&pattern, MAX_NESTING_AS_WRITTEN)?;
        let rest = left.checked_sub(form.reading);
        *left = rest.ok_or("takes too long to read: too many large classes ignore case")?;
        let meaning = form.meaning(&pattern)?;
        Ok(Self::of(pattern, &meaning))
    }

    /// [`Self::look_at`] for [`Self::as_written`]; all but very long ones.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(crate) fn look_at_as_written(pattern: &str, looks: &mut Looks) -> Result<(), &'static str> {
        if pattern.len() > MAX_LOOKED_AT {
            return Ok(());
        }
        let form = Form::of(pattern, MAX_NESTING_AS_WRITTEN)?;
        if looks.admit(&form) { form.meaning(pattern).map(drop) } else { Ok(()) }
    }

    fn of(pattern: String, parsed: &Hir) -> Self {
        let literal = match parsed.kind() {
            HirKind::Literal(literal) => String::from_utf8(literal.0.to_vec()).ok(),
            _ => None,
        };
        let bytes = match literal {
            Some(_) => 0,
            None => Measure::SIZE.of(parsed).saturating_mul(BYTES_EACH).saturating_add(BUILT_BYTES),
        };
        Self { translated: pattern, literal, bytes, built: Slot::default() }
    }

    /// As one of those of a policy or schema, which have their share of what is built together.
    pub(crate) fn owned_by(self, owner: Owner) -> Self {
        Self { built: Slot::of(owner), ..self }
    }

    /// About what it takes in memory once it is built.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What looking for it in `text` takes, as so many comparisons: each character of the text may meet every place of the
    /// pattern.
    pub(crate) fn matching(&self, text: &str) -> usize {
        /// Bytes of text times bytes that a pattern takes when it is built.
        const AS_MUCH_AS_ONE: u64 = 1 << 20;
        /// A pattern that is plain text takes no room, but time.
        const PLAIN: u64 = 256;
        let count = self.bytes.saturating_add(PLAIN).saturating_mul(text.len() as u64);
        usize::try_from(count / AS_MUCH_AS_ONE).unwrap_or(usize::MAX)
    }

    /// Whether the pattern occurs in `text`; `None` where it cannot be built, which its cost should have excluded.
    pub(crate) fn occurs_in(&self, text: &str) -> Option<bool> {
        if let Some(literal) = &self.literal {
            return Some(text.contains(literal.as_str()));
        }
        Some(self.built.get(&self.translated, self.bytes)?.occurs_in(text))
    }
}

/// In the syntax of this program, with its form.
fn formed(pattern: &str) -> Result<(String, Form), Invalid> {
    if pattern.len() > MAX_PATTERN {
        return Err(refused(pattern, "is too long"));
    }
    let translated = translate(pattern).map_err(|reason| refused(pattern, &reason))?;
    let form = Form::of(&translated, MAX_NESTING).map_err(|reason| refused(pattern, reason))?;
    Ok((translated, form))
}

fn refused(pattern: &str, reason: &str) -> Invalid {
    Invalid::new(
        Code::InvalidPolicy,
        format!("the pattern `{}` {reason}", shown(pattern)),
        "write a regular expression without look-around and back-references",
    )
}

/// How parts of a pattern are counted.
struct Measure {
    /// For a class that goes beyond ASCII, a group, and what may be left out.
    beyond_ascii: u64,
    group: u64,
    optional: u64,
}

impl Measure {
    /// As documents have always been judged.
    const COST: Self = Self { beyond_ascii: 0, group: 0, optional: 0 };
    /// Closer to what is built of it.
    const SIZE: Self = Self { beyond_ascii: BEYOND_ASCII, group: 2, optional: 1 };

    fn of(&self, hir: &Hir) -> u64 {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => 1,
            HirKind::Literal(literal) => literal.0.len() as u64,
            HirKind::Class(Class::Unicode(class)) => {
                let beyond = class.ranges().last().is_some_and(|range| !range.end().is_ascii());
                let more = if beyond { self.beyond_ascii } else { 0 };
                (class.ranges().len() as u64).saturating_add(more)
            }
            HirKind::Class(Class::Bytes(class)) => class.ranges().len() as u64,
            HirKind::Repetition(repetition) => {
                let times = u64::from(repetition.max.unwrap_or(repetition.min.saturating_add(1)));
                times.max(1).saturating_mul(self.of(&repetition.sub).saturating_add(self.optional))
            }
            HirKind::Capture(capture) => self.of(&capture.sub).saturating_add(self.group),
            HirKind::Concat(parts) | HirKind::Alternation(parts) => {
                parts.iter().map(|part| self.of(part)).fold(0, u64::saturating_add)
            }
        }
    }
}
