//! What the patterns of documents take together, judged where documents come in.
//!
//! A pattern is bounded by itself, but a document may have thousands of them, and one question may need them all.

use std::collections::HashSet;

use super::{Pattern, as_text};
use crate::document::{Document, Operator, Refusal};
use crate::json_schema::Schema;
use crate::limits::format_bytes;
use crate::shown;

/// What the patterns of documents that build on each other may take together once they are built: about two thousand small
/// ones, or fifty of the greatest cost.
pub const MAX_PATTERN_BYTES: u64 = 128 << 20;

/// # Errors
/// Where the documents have more patterns than one policy, or than the schema of one tool, may have.
pub(crate) fn check_together<'a>(
    documents: impl Iterator<Item = &'a Document> + Clone,
) -> Result<(), Refusal> {
    for tool in documents.clone().flat_map(|document| &document.tools) {
        if let Some(schema) = &tool.input_schema
            && let Err(reason) = Schema::new(schema.clone())
        {
            return Err(Refusal::whole(
                format!("tool `{}` has an input schema whose {reason}", shown(&tool.name)),
                "see the guide to tools for what patterns may take",
            ));
        }
    }
    let mut seen = HashSet::new();
    let mut bytes = 0_u64;
    let rules = documents.flat_map(|document| &document.rules);
    for rule in rules.filter(|rule| rule.condition.operator == Operator::Matches) {
        let text = as_text(&rule.condition.value);
        if seen.contains(&text) {
            continue;
        }
        // One that is malformed denies, and is built by nobody.
        bytes = bytes.saturating_add(Pattern::new(&text).map_or(0, |pattern| pattern.bytes()));
        seen.insert(text);
        if bytes > MAX_PATTERN_BYTES {
            return Err(Refusal::whole(
                format!(
                    "the patterns of {} rules would take more than {} of memory together",
                    seen.len(),
                    format_bytes(MAX_PATTERN_BYTES)
                ),
                "join patterns with `|`, or use `in` and `contains`; patterns that are plain text cost nothing",
            ));
        }
    }
    Ok(())
}
