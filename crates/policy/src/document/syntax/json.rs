//! JSON text to a tree, as RFC 8259 has it.
//!
//! A reader of its own because places are needed: YAML would do for most JSON, but not for surrogate pairs.

use std::borrow::Cow;

use super::Refusal;
use super::node::{Content, Entry, MAX_DEPTH, MAX_NODES, Node, Position, Seen, push_entry};

const REMEDY: &str = "correct the JSON: most often this is a comma or a quote";

pub(super) fn parse(text: &str) -> Result<Node<'_>, Refusal> {
    let mut reader = Reader { text, at: 0, line: 1, marked: 0, column: 1, nodes: 0 };
    let node = reader.value(0)?;
    reader.space();
    match reader.peek() {
        None => Ok(node),
        Some(_) => Err(reader.refuse("there is text after the end of the document")),
    }
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    /// Where [`Reader::column`] was last true; a document can be one line of megabytes.
    marked: usize,
    column: usize,
    nodes: usize,
}

impl<'a> Reader<'a> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn position(&mut self) -> Position {
        self.column += self.text[self.marked..self.at].chars().count();
        self.marked = self.at;
        Position::new(self.line, self.column)
    }

    fn refuse(&mut self, message: impl Into<String>) -> Refusal {
        Refusal::new(self.position(), message, REMEDY)
    }

    fn space(&mut self) {
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' => {}
                b'\n' => {
                    self.line += 1;
                    self.marked = self.at + 1;
                    self.column = 1;
                }
                _ => return,
            }
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node<'a>, Refusal> {
        self.space();
        let position = self.position();
        self.nodes += 1;
        if depth > MAX_DEPTH || self.nodes > MAX_NODES {
            return Err(Refusal::new(
                position,
                format!("more than {MAX_DEPTH} levels or {MAX_NODES} values"),
                "write it flatter, or split it and join the parts with `extends`",
            ));
        }
        let content = match self.peek() {
            Some(b'{') => self.map(depth)?,
            Some(b'[') => self.list(depth)?,
            Some(b'"') => Content::Text(self.string()?),
            Some(b'-' | b'0'..=b'9') => self.number()?,
            Some(_) => self.word()?,
            None => return Err(self.refuse("the document ends too early")),
        };
        Ok(Node { position, content })
    }

    fn word(&mut self) -> Result<Content<'a>, Refusal> {
        let rest = &self.text[self.at..];
        for (word, content) in [
            ("true", Content::Bool(true)),
            ("false", Content::Bool(false)),
            ("null", Content::Null),
        ] {
            if rest.starts_with(word) {
                self.at += word.len();
                return Ok(content);
            }
        }
        Err(self.refuse("a value should be here"))
    }

    fn list(&mut self, depth: usize) -> Result<Content<'a>, Refusal> {
        let mut items = Vec::new();
        self.at += 1;
        self.space();
        if self.take(b']') {
            return Ok(Content::List(items));
        }
        loop {
            items.push(self.value(depth + 1)?);
            self.space();
            if self.take(b']') {
                return Ok(Content::List(items));
            }
            if !self.take(b',') {
                return Err(self.refuse("a `,` or `]` should be here"));
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Content<'a>, Refusal> {
        let mut entries = Vec::new();
        let mut seen = Seen::default();
        self.at += 1;
        self.space();
        if self.take(b'}') {
            return Ok(Content::Map(entries));
        }
        loop {
            self.space();
            let position = self.position();
            if self.peek() != Some(b'"') {
                return Err(self.refuse("a name in double quotes should be here"));
            }
            let key = self.string()?;
            self.space();
            if !self.take(b':') {
                return Err(self.refuse("a `:` should be here"));
            }
            let value = self.value(depth + 1)?;
            push_entry(&mut entries, &mut seen, Entry { key, position, value })?;
            self.space();
            if self.take(b'}') {
                return Ok(Content::Map(entries));
            }
            if !self.take(b',') {
                return Err(self.refuse("a `,` or `}` should be here"));
            }
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    /// Escapes are left to serde_json; a string without any is borrowed.
    fn string(&mut self) -> Result<Cow<'a, str>, Refusal> {
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        let mut escaped = false;
        loop {
            match bytes.get(end) {
                Some(b'"') => break,
                Some(b'\\') => {
                    escaped = true;
                    end += 2;
                }
                Some(0..0x20) => return Err(self.refuse("a control character is in this text")),
                Some(_) => end += 1,
                None => return Err(self.refuse("this text has no closing quote")),
            }
        }
        let text = if escaped {
            serde_json::from_str::<String>(&self.text[start..=end])
                .map(Cow::Owned)
                .map_err(|_| self.refuse("this text has an escape that JSON does not know"))?
        } else {
            Cow::Borrowed(&self.text[start + 1..end])
        };
        self.at = end + 1;
        Ok(text)
    }

    fn number(&mut self) -> Result<Content<'a>, Refusal> {
        let rest = &self.text[self.at..];
        let end = rest
            .find(|c: char| !c.is_ascii_digit() && !matches!(c, '-' | '+' | '.' | 'e' | 'E'))
            .unwrap_or(rest.len());
        let word = &rest[..end];
        // The grammar of JSON numbers is serde_json's to judge; their value is not, because it rounds.
        if serde_json::from_str::<serde_json::Number>(word).is_err() {
            return Err(self.refuse(format!("`{}` is no number", crate::shown(word))));
        }
        let content = if word.contains(['.', 'e', 'E']) {
            word.parse().ok().filter(|value: &f64| value.is_finite()).map(Content::Float)
        } else {
            let fits = |value: &i128| *value >= i64::MIN.into() && *value <= u64::MAX.into();
            word.parse().ok().filter(fits).map(Content::Int)
        };
        let Some(content) = content else {
            return Err(self.refuse(format!("`{}` is too large", crate::shown(word))));
        };
        self.at += end;
        Ok(content)
    }
}
