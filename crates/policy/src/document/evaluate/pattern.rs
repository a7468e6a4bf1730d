//! A compiled regular expression, bounded in what it costs.
//!
//! Matching is linear in the text. Patterns are judged when the document is read and built when first asked, since
//! most rules of a large document are never reached.

use std::sync::OnceLock;

use belljar_codes::Code;
use regex::{Regex, RegexBuilder};
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Hir, HirKind};

use super::translate::translate;
use crate::{Invalid, shown};

const MAX_PATTERN: usize = 4096;
const MAX_NESTING: u32 = 64;
/// Literals, ranges and repetitions multiplied out.
const MAX_COST: u64 = 20_000;
/// What a pattern of the greatest cost stays below with room to spare.
const MAX_PROGRAM: usize = 16 << 20;

#[derive(Debug)]
pub(crate) struct Pattern {
    translated: String,
    /// A pattern that is plain text needs no automaton.
    literal: Option<String>,
    built: OnceLock<Option<Regex>>,
}

impl Pattern {
    /// # Errors
    /// Where the pattern is malformed, costs too much, or needs what linear matching cannot do.
    pub(crate) fn new(pattern: &str) -> Result<Self, Invalid> {
        let refuse = |reason: &str| {
            Invalid::new(
                Code::InvalidPolicy,
                format!("the pattern `{}` {reason}", shown(pattern)),
                "write a regular expression without look-around and back-references",
            )
        };
        if pattern.len() > MAX_PATTERN {
            return Err(refuse("is too long"));
        }
        let translated = translate(pattern).map_err(|reason| refuse(&reason))?;
        let parsed = ParserBuilder::new()
            .nest_limit(MAX_NESTING)
            .build()
            .parse(&translated)
            .map_err(|_| refuse("is malformed"))?;
        if cost(&parsed) > MAX_COST {
            return Err(refuse("costs too much: its repetitions multiply"));
        }
        let literal = match parsed.kind() {
            HirKind::Literal(literal) => String::from_utf8(literal.0.to_vec()).ok(),
            _ => None,
        };
        Ok(Self { translated, literal, built: OnceLock::new() })
    }

    /// Whether the pattern occurs in `text`; `None` where it cannot be built, which its cost should have excluded.
    pub(crate) fn occurs_in(&self, text: &str) -> Option<bool> {
        if let Some(literal) = &self.literal {
            return Some(text.contains(literal.as_str()));
        }
        let built = self.built.get_or_init(|| {
            RegexBuilder::new(&self.translated)
                .size_limit(MAX_PROGRAM)
                .nest_limit(2 * MAX_NESTING)
                .build()
                .ok()
        });
        Some(built.as_ref()?.is_match(text))
    }
}

fn cost(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty | HirKind::Look(_) => 1,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => class.ranges().len() as u64,
        HirKind::Class(regex_syntax::hir::Class::Bytes(class)) => class.ranges().len() as u64,
        HirKind::Repetition(repetition) => {
            let times = u64::from(repetition.max.unwrap_or(repetition.min.saturating_add(1)));
            times.max(1).saturating_mul(cost(&repetition.sub))
        }
        HirKind::Capture(capture) => cost(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(cost).fold(0, u64::saturating_add)
        }
    }
}
