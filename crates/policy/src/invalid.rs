//! Why a value that a caller gave cannot be used.

use belljar_codes::Code;

/// How much of a refused value a message repeats. Values can be megabytes long; messages are read by people.
const SHOWN_CHARS: usize = 60;

/// A refused value: which, why, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    pub code: Code,
    pub message: String,
    pub remedy: String,
}

impl Invalid {
    pub fn new(code: Code, message: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { code, message: message.into(), remedy: remedy.into() }
    }
}

/// `text` as a message may show it: control characters escaped, long text cut.
#[must_use]
pub fn shown(text: &str) -> String {
    let mut characters = text.chars();
    let mut out: String =
        characters.by_ref().take(SHOWN_CHARS).flat_map(char::escape_debug).collect();
    if characters.next().is_some() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_text_is_inert_and_short() {
        assert_eq!(shown("plain"), "plain");
        assert_eq!(shown("a\n\0\u{1b}[2J"), "a\\n\\0\\u{1b}[2J");
        assert_eq!(shown(&"x".repeat(61)), format!("{}…", "x".repeat(60)));
    }
}
