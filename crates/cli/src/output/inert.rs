//! Makes bytes from a sandbox harmless to a terminal.
//!
//! A terminal obeys what it is shown: an escape sequence can retitle it, hide text, answer questions as if typed.
//! Here every control character but newline, return and tab becomes a picture of itself, and bytes that are no text
//! become replacement characters. Only for people's eyes: a pipe gets the bytes as they are.

/// Turns a stream of bytes into inert text, chunk by chunk.
#[derive(Debug, Default)]
pub(crate) struct Inert {
    /// The beginning of a character whose rest has not come yet: at most three bytes.
    pending: Vec<u8>,
}

impl Inert {
    pub(crate) fn push(&mut self, bytes: &[u8]) -> String {
        let mut joined = std::mem::take(&mut self.pending);
        joined.extend_from_slice(bytes);
        let mut out = String::with_capacity(joined.len());
        let mut chunks = joined.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            chunk.valid().chars().for_each(|c| push_harmless(&mut out, c));
            let invalid = chunk.invalid();
            if invalid.is_empty() {
                continue;
            }
            if chunks.peek().is_none() && is_beginning(invalid) {
                self.pending = invalid.to_vec();
            } else {
                out.push(char::REPLACEMENT_CHARACTER);
            }
        }
        out
    }

    /// A whole text, such as a name, kept on one line.
    pub(crate) fn line(bytes: &[u8]) -> String {
        let mut inert = Self::default();
        let text = inert.push(bytes) + inert.finish();
        text.replace(['\n', '\r'], "\u{fffd}")
    }

    /// What is left when no more bytes come.
    pub(crate) fn finish(self) -> &'static str {
        if self.pending.is_empty() { "" } else { "\u{fffd}" }
    }
}

/// Whether more bytes could make a character of `bytes`.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

fn push_harmless(out: &mut String, c: char) {
    match c {
        '\n' | '\r' | '\t' => out.push(c),
        '\0'..='\u{1f}' => {
            out.push(char::from_u32(0x2400 + u32::from(c)).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        '\u{7f}' => out.push('\u{2421}'),
        // Control characters of eight bits, and marks that reorder the text after them.
        '\u{80}'..='\u{9f}'
        | '\u{061c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' => out.push_str(&format!("<U+{:04X}>", u32::from(c))),
        _ => out.push(c),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(bytes: &[u8]) -> String {
        let mut inert = Inert::default();
        let mut text = inert.push(bytes);
        text.push_str(inert.finish());
        text
    }

    #[test]
    fn controls_become_pictures() {
        let check = |bytes: &[u8], expected: &str| assert_eq!(whole(bytes), expected);
        check(b"plain\r\n\ttext\n", "plain\r\n\ttext\n");
        check(b"\x1b[31mred\x1b[0m", "␛[31mred␛[0m");
        check(b"\x1b]0;title\x07", "␛]0;title␇");
        check(b"a\0b\x7f\x08", "a␀b␡␈");
        check("é 漢 🦀".as_bytes(), "é 漢 🦀");
        check("\u{9b}2J".as_bytes(), "<U+009B>2J");
        check("a\u{202e}b".as_bytes(), "a<U+202E>b");
        check(b"\x9b2J", "\u{fffd}2J");
        check(b"\xff\xfe", "\u{fffd}\u{fffd}");
    }

    #[test]
    fn a_character_may_come_in_pieces() {
        let text = "é漢🦀\u{9b}";
        for split in 0..=text.len() {
            let (first, second) = text.as_bytes().split_at(split);
            let mut inert = Inert::default();
            let joined = inert.push(first) + &inert.push(second) + inert.finish();
            assert_eq!(joined, "é漢🦀<U+009B>", "split at {split}");
        }
    }

    #[test]
    fn an_unfinished_character_is_replaced_at_the_end() {
        assert_eq!(whole(&"é".as_bytes()[..1]), "\u{fffd}");
        let mut inert = Inert::default();
        assert_eq!(inert.push(b"\xf0\x9f"), "");
        assert_eq!(inert.push(b"x"), "\u{fffd}x");
    }
}
