//! Text of one byte per character, as the parser of YAML reads it.
//!
//! Almost all documents are such text. The parser's own reader has it make a larger buffer for every word than words
//! need, twice. Not here: what the characters mean; that is the parser's, for this text as for any other.

use saphyr_parser::Input;

/// What is left of a text that is ASCII.
pub(super) struct Ascii<'a> {
    rest: &'a [u8],
    /// What the parser asked to see; it asks how much that was.
    lookahead: usize,
}

impl<'a> Ascii<'a> {
    /// `None` where the text has other characters.
    pub(super) fn new(text: &'a str) -> Option<Self> {
        text.is_ascii().then_some(Self { rest: text.as_bytes(), lookahead: 0 })
    }
}

impl Input for Ascii<'_> {
    #[inline]
    fn lookahead(&mut self, count: usize) {
        self.lookahead = self.lookahead.max(count);
    }

    #[inline]
    fn buflen(&self) -> usize {
        self.lookahead
    }

    /// The parser makes so much room in the buffer of every word that it reads, beside what it begins with.
    #[inline]
    fn bufmaxlen(&self) -> usize {
        16
    }

    #[inline]
    fn raw_read_ch(&mut self) -> char {
        let next = self.peek();
        self.skip();
        next
    }

    #[inline]
    fn raw_read_non_breakz_ch(&mut self) -> Option<char> {
        let next = self.peek();
        if matches!(next, '\0' | '\n' | '\r') {
            return None;
        }
        self.skip();
        Some(next)
    }

    #[inline]
    fn skip(&mut self) {
        self.skip_n(1);
    }

    #[inline]
    fn skip_n(&mut self, count: usize) {
        self.rest = self.rest.get(count..).unwrap_or_default();
    }

    #[inline]
    fn peek(&self) -> char {
        self.peek_nth(0)
    }

    #[inline]
    fn peek_nth(&self, n: usize) -> char {
        char::from(self.rest.get(n).copied().unwrap_or(0))
    }

    #[inline]
    fn peek_opt(&self) -> Option<char> {
        self.rest.first().copied().map(char::from)
    }

    #[inline]
    fn next_2_are(&self, first: char, second: char) -> bool {
        self.peek() == first && self.peek_nth(1) == second
    }

    #[inline]
    fn next_3_are(&self, first: char, second: char, third: char) -> bool {
        self.next_2_are(first, second) && self.peek_nth(2) == third
    }
}
