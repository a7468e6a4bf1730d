//! What the patterns of documents take together, judged where documents come in.
//!
//! A pattern is bounded by itself, but a document may have thousands of them, and one question may need them all.

use std::collections::HashSet;

use super::{Pattern, as_text};
use crate::document::{Document, Operator, Refusal};
use crate::json_schema::{Reading, Schema};
use crate::limits::format_bytes;
use crate::{Invalid, shown};

/// What the patterns of documents that build on each other may take together once they are built: about two thousand small
/// ones, or fifty of the greatest cost.
pub const MAX_PATTERN_BYTES: u64 = 128 << 20;

/// What reading all of them may take: a second. Eight hundred times `(?i)\w+` take as much.
const MAX_READING: u64 = 1 << 28;

/// # Errors
/// Where the documents have more patterns than one policy, or than the schema of one tool, may have.
pub(crate) fn check_together<'a>(
    documents: impl Iterator<Item = &'a Document> + Clone,
) -> Result<(), Refusal> {
    let mut reading = Reading::default();
    for tool in documents.clone().flat_map(|document| &document.tools) {
        if let Some(schema) = &tool.input_schema
            && let Err(reason) = Schema::new(schema.clone(), &mut reading)
        {
            return Err(Refusal::whole(
                format!("tool `{}` has an input schema whose {reason}", shown(&tool.name)),
                "see the guide to tools for what patterns may take",
            ));
        }
    }
    let rules = documents.flat_map(|document| &document.rules);
    let patterns: HashSet<_> = rules
        .filter(|rule| rule.condition.operator == Operator::Matches)
        .map(|rule| as_text(&rule.condition.value))
        .collect();
    let reading = patterns.iter().map(|text| Pattern::reading(text)).fold(0, u64::saturating_add);
    if reading > MAX_READING {
        return Err(Refusal::whole(
            format!("the patterns of {} rules would take too long to read", patterns.len()),
            "let fewer patterns with large classes, such as `\\w`, ignore case",
        ));
    }
    let mut bytes = 0_u64;
    for text in &patterns {
        let pattern = Pattern::new(text);
        let pattern =
            pattern.map_err(|Invalid { message, remedy, .. }| Refusal::whole(message, remedy))?;
        bytes = bytes.saturating_add(pattern.bytes());
        if bytes > MAX_PATTERN_BYTES {
            return Err(Refusal::whole(
                format!(
                    "the patterns of {} rules would take more than {} of memory together",
                    patterns.len(),
                    format_bytes(MAX_PATTERN_BYTES)
                ),
                "join patterns with `|`, or use `in` and `contains`; patterns that are plain text cost nothing",
            ));
        }
    }
    Ok(())
}
