//! Why a document cannot be used, and where in it.

use std::fmt;

use belljar_codes::Code;
use serde::de::{self, Expected, Unexpected};

use super::Position;
use crate::{Invalid, shown};

/// A refused document: the place, the reason, the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct Refusal {
    position: Option<Position>,
    pub message: String,
    pub remedy: String,
}

impl Refusal {
    pub(crate) fn new(
        position: Position,
        message: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { position: Some(position), message: message.into(), remedy: remedy.into() }
    }

    /// About the document as a whole.
    pub(crate) fn whole(message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { position: None, message: message.into(), remedy: remedy.into() }
    }

    /// Says where, unless something further inside said so already.
    pub(crate) fn at(mut self, position: Position) -> Self {
        self.position.get_or_insert(position);
        self
    }

    /// Where a text ends too early, readers name the line after its last one, which nobody finds in a file.
    pub(crate) fn within(mut self, text: &str) -> Self {
        let last = text.rsplit(['\n', '\r']).next().unwrap_or_default();
        let before = &text[..text.len() - last.len()];
        let breaks = before.matches(['\n', '\r']).count() - before.matches("\r\n").count();
        let end = Position::new(breaks + 1, last.chars().count() + 1);
        if self.position.is_some_and(|position| position.line > end.line) {
            self.position = Some(end);
        }
        self
    }

    /// Counted from one.
    #[must_use]
    pub fn line(&self) -> Option<u32> {
        self.position.map(|position| position.line)
    }

    /// Counted from one, in characters.
    #[must_use]
    pub fn column(&self) -> Option<u32> {
        self.position.map(|position| position.column)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Position { line, column }) = self.position {
            write!(f, "line {line}, column {column}: ")?;
        }
        f.write_str(&self.message)
    }
}

impl From<Refusal> for Invalid {
    fn from(refusal: Refusal) -> Self {
        Self::new(Code::InvalidPolicy, refusal.to_string(), refusal.remedy)
    }
}

impl de::Error for Refusal {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::whole(message.to_string(), "see the policy guide for what can be written here")
    }

    fn invalid_type(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        let expected = in_words(&expected.to_string());
        Self::whole(format!("{} is not {expected}", said(found)), format!("write {expected}"))
    }

    fn invalid_value(found: Unexpected<'_>, expected: &dyn Expected) -> Self {
        Self::invalid_type(found, expected)
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        Self::whole(format!("unknown field `{}`", shown(field)), nearest(field, expected))
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        Self::whole(format!("`{}` is not known here", shown(variant)), nearest(variant, expected))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::whole(format!("the field `{field}` is missing"), format!("add `{field}:`"))
    }
}

fn said(found: Unexpected<'_>) -> String {
    match found {
        Unexpected::Str(text) => format!("the text `{}`", shown(text)),
        Unexpected::Bool(value) => format!("`{value}`"),
        Unexpected::Unsigned(value) => format!("the number `{value}`"),
        Unexpected::Signed(value) => format!("the number `{value}`"),
        Unexpected::Float(value) => format!("the number `{value}`"),
        Unexpected::Unit | Unexpected::Option => "nothing (`null`)".to_owned(),
        Unexpected::Seq => "a list".to_owned(),
        Unexpected::Map | Unexpected::StructVariant => "a map".to_owned(),
        other => other.to_string(),
    }
}

/// What serde calls a type, in the words of a document.
fn in_words(expected: &str) -> String {
    let words = match expected {
        "a string" | "string" => "text",
        "a boolean" => "`true` or `false`",
        "a sequence" => "a list",
        "f64" => "a number",
        "u8" | "u16" | "u32" | "u64" => "a whole number, not negative",
        "i32" | "i64" => "a whole number",
        text if text.starts_with("struct ") || text == "a map" => "a map of fields",
        text if text.starts_with("enum ") || text == "string or map" => "one of the known words",
        other => other,
    };
    words.to_owned()
}

/// The remedy for a word that is none: the nearest that is, and all there are.
fn nearest(word: &str, known: &[&str]) -> String {
    let best = known
        .iter()
        .map(|candidate| (distance(&word.to_lowercase(), candidate), *candidate))
        .min()
        .filter(|(distance, candidate)| *distance <= 1 + candidate.len() / 3);
    let all = known.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    match best {
        Some((_, candidate)) => format!("did you mean `{candidate}`? known here: {all}"),
        None => format!("known here: {all}"),
    }
}

/// How many characters to change, leave out, add or swap with their neighbour.
fn distance(from: &str, to: &str) -> usize {
    // A longer word is near to nothing; the bound keeps the square small.
    let from: Vec<char> = from.chars().take(64).collect();
    let to: Vec<char> = to.chars().take(64).collect();
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=to.len()).collect();
    for (row, left) in from.iter().enumerate() {
        let mut next = vec![row + 1];
        for (column, right) in to.iter().enumerate() {
            let change = last[column] + usize::from(left != right);
            let mut cost = change.min(last[column + 1] + 1).min(next[column] + 1);
            if row > 0 && column > 0 && *left == to[column - 1] && from[row - 1] == *right {
                cost = cost.min(before[column - 1] + 1);
            }
            next.push(cost);
        }
        before = std::mem::replace(&mut last, next);
    }
    last[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        for (from, to, expected) in [
            ("", "", 0),
            ("abc", "abc", 0),
            ("actoin", "action", 1),
            ("prioritty", "priority", 1),
            ("rule", "rules", 1),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(from, to), expected, "{from} {to}");
        }
    }

    #[test]
    fn a_far_word_has_no_nearest() {
        assert!(nearest("actoin", &["action", "name"]).starts_with("did you mean `action`?"));
        assert_eq!(nearest("zzzzzz", &["action", "name"]), "known here: `action`, `name`");
    }
}
