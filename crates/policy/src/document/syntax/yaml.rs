//! YAML text to a tree.
//!
//! One document, maps with text keys, anchors and aliases within the bounds, merge keys (`<<`). Tags other than those
//! of the plain types are refused: they ask a reader to make objects.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Input, Marker, Parser, ScalarStyle, Span, StrInput, Tag};

use super::ascii::Ascii;
use super::node::{
    Content, Entry, MAX_DEPTH, MAX_NODES, MAX_TEXT, Node, Position, Seen, push_entry,
};
use super::{Refusal, scalar};

/// Anchors that one document may have.
const MAX_ANCHORS: usize = 1024;

pub(super) fn parse(text: &str) -> Result<Node<'_>, Refusal> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    match Ascii::new(text) {
        Some(ascii) => parse_input(text, ascii),
        None => parse_input(text, StrInput::new(text)),
    }
}

fn parse_input<'a, I: Input>(text: &'a str, input: I) -> Result<Node<'a>, Refusal> {
    let (events, size, kept) = (Parser::new(input), Size::default(), Size::default());
    let mut reader = Reader { text, events, anchors: HashMap::new(), size, kept };
    let mut found = None;
    loop {
        let (event, span) = reader.next()?;
        match event {
            Event::StreamEnd => break,
            Event::StreamStart | Event::DocumentStart(_) | Event::DocumentEnd | Event::Nothing => {}
            _ if found.is_some() => {
                return Err(Refusal::new(
                    position(span.start),
                    "a second document begins here",
                    "write one document in one file",
                ));
            }
            event => found = Some(reader.node(event, span, 0)?),
        }
    }
    found.ok_or_else(|| Refusal::whole("the document is empty", "write at least `name:`"))
}

struct Reader<'a, I: Input> {
    text: &'a str,
    events: Parser<'a, I>,
    /// What an anchor stands for and how much that is.
    anchors: HashMap<usize, (Node<'a>, Size)>,
    /// Of what was read so far.
    size: Size,
    /// Of what anchors stand for: each has all of it once more, also what those in it have.
    kept: Size,
}

#[derive(Clone, Copy, Default)]
struct Size {
    nodes: usize,
    /// Bytes of names and texts.
    text: usize,
}

impl Size {
    fn add(&mut self, more: Self) {
        self.nodes += more.nodes;
        self.text += more.text;
    }
}

impl<'a, I: Input> Reader<'a, I> {
    fn next(&mut self) -> Result<(Event<'a>, Span), Refusal> {
        match self.events.next() {
            Some(Ok(found)) => Ok(found),
            Some(Err(error)) => Err(Refusal::new(
                position(*error.marker()),
                error.info().to_owned(),
                "correct the YAML: most often this is the indentation or a missing quote",
            )),
            None => Ok((Event::StreamEnd, Span::default())),
        }
    }

    fn node(&mut self, event: Event<'a>, span: Span, depth: usize) -> Result<Node<'a>, Refusal> {
        let place = position(span.start);
        let before = self.size;
        self.count(Size { nodes: 1, text: 0 }, place)?;
        if depth > MAX_DEPTH {
            return Err(Refusal::new(
                place,
                format!("lists and maps are nested more than {MAX_DEPTH} deep"),
                "write it flatter",
            ));
        }
        let (anchor, content) = match event {
            Event::Alias(anchor) => return self.alias(anchor, place),
            Event::Scalar(word, style, anchor, tag) => {
                let word = borrowed(self.text, word, style, span);
                self.count(Size { nodes: 0, text: word.len() }, place)?;
                (anchor, scalar_content(word, style, tag.as_deref(), place)?)
            }
            Event::SequenceStart(anchor, tag) => {
                check_tag(tag.as_deref(), "seq", place)?;
                (anchor, self.list(depth)?)
            }
            Event::MappingStart(anchor, tag) => {
                check_tag(tag.as_deref(), "map", place)?;
                (anchor, self.map(depth)?)
            }
            _ => return Err(Refusal::new(place, "the document ends too early", "complete it")),
        };
        let node = Node { position: place, content };
        if anchor > 0 {
            if self.anchors.len() >= MAX_ANCHORS {
                let message = format!("there are more than {MAX_ANCHORS} anchors");
                return Err(Refusal::new(place, message, "write the values out"));
            }
            let nodes = self.size.nodes - before.nodes;
            let size = Size { nodes, text: self.size.text - before.text };
            self.kept.add(size);
            self.check_size(place)?;
            self.anchors.insert(anchor, (node.clone(), size));
        }
        Ok(node)
    }

    fn list(&mut self, depth: usize) -> Result<Content<'a>, Refusal> {
        let mut items = Vec::new();
        loop {
            match self.next()? {
                (Event::SequenceEnd, _) => return Ok(Content::List(items)),
                (event, span) => items.push(self.node(event, span, depth + 1)?),
            }
        }
    }

    fn map(&mut self, depth: usize) -> Result<Content<'a>, Refusal> {
        let mut entries = Vec::new();
        let mut seen = Seen::default();
        let mut merged = Vec::new();
        loop {
            let (event, span) = self.next()?;
            let place = position(span.start);
            let (key, plain) = match event {
                Event::MappingEnd => break,
                Event::Scalar(word, style, _, _) => {
                    (borrowed(self.text, word, style, span), style == ScalarStyle::Plain)
                }
                _ => {
                    return Err(Refusal::new(
                        place,
                        "a key is not text",
                        "use plain names as keys",
                    ));
                }
            };
            self.count(Size { nodes: 0, text: key.len() }, place)?;
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            if plain && key == "<<" {
                merged.push(value);
                continue;
            }
            push_entry(&mut entries, &mut seen, Entry { key, position: place, value })?;
        }
        for source in merged {
            self.merge(&mut entries, &mut seen, source)?;
        }
        Ok(Content::Map(entries))
    }

    /// What `<<` brings along; fields that are written out, or came earlier, count.
    fn merge(
        &mut self,
        entries: &mut Vec<Entry<'a>>,
        seen: &mut Seen<'a>,
        source: Node<'a>,
    ) -> Result<(), Refusal> {
        let place = source.position;
        match source.content {
            Content::Map(more) => {
                self.count(Size { nodes: more.len(), text: 0 }, place)?;
                for entry in more {
                    if seen.insert(entries, &entry) {
                        entries.push(entry);
                    }
                }
                Ok(())
            }
            Content::List(maps)
                if maps.iter().all(|map| matches!(map.content, Content::Map(_))) =>
            {
                maps.into_iter().try_for_each(|map| self.merge(entries, seen, map))
            }
            _ => Err(Refusal::new(
                place,
                "`<<` takes a map or a list of maps",
                "name a map with `*`",
            )),
        }
    }

    fn alias(&mut self, anchor: usize, place: Position) -> Result<Node<'a>, Refusal> {
        let Some((node, size)) = self.anchors.get(&anchor) else {
            return Err(Refusal::new(
                place,
                "an alias stands inside what it names",
                "write the value out",
            ));
        };
        let (node, size) = (node.clone(), *size);
        self.count(size, place)?;
        Ok(Node { position: place, content: node.content })
    }

    fn count(&mut self, more: Size, place: Position) -> Result<(), Refusal> {
        self.size.add(more);
        self.check_size(place)
    }

    fn check_size(&self, place: Position) -> Result<(), Refusal> {
        let message = if self.size.nodes + self.kept.nodes > MAX_NODES {
            format!("the document has more than {MAX_NODES} values, anchors and aliases included")
        } else if self.size.text + self.kept.text > MAX_TEXT {
            format!(
                "the document has more than {MAX_TEXT} bytes of text, anchors and aliases included"
            )
        } else {
            return Ok(());
        };
        Err(Refusal::new(place, message, "split it and join the parts with `extends`"))
    }
}

/// A word as a part of the text, where the text says it letter by letter: the parser gives each word a buffer with room
/// to spare, too much to keep for every word. Places count characters; after one of several bytes they
/// point elsewhere, the comparison fails, and the word stays as it is.
fn borrowed<'a>(text: &'a str, word: Cow<'a, str>, style: ScalarStyle, span: Span) -> Cow<'a, str> {
    let quote = usize::from(matches!(style, ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted));
    let start = span.start.index() + quote;
    match text.get(start..start + word.len()) {
        Some(part) if part == word => Cow::Borrowed(part),
        _ => word,
    }
}

fn position(marker: Marker) -> Position {
    Position::new(marker.line(), marker.col() + 1)
}

fn check_tag(tag: Option<&Tag>, plain: &str, place: Position) -> Result<(), Refusal> {
    match tag {
        Some(tag) if !(tag.is_yaml_core_schema() && tag.suffix == plain) => Err(Refusal::new(
            place,
            format!("the tag `{}` is not known", crate::shown(&tag.to_string())),
            "leave the tag out",
        )),
        _ => Ok(()),
    }
}

fn scalar_content<'a>(
    text: Cow<'a, str>,
    style: ScalarStyle,
    tag: Option<&Tag>,
    place: Position,
) -> Result<Content<'a>, Refusal> {
    let as_text = match tag {
        None => style != ScalarStyle::Plain,
        Some(tag) => {
            check_tag(Some(tag), "str", place)?;
            true
        }
    };
    if as_text {
        return Ok(Content::Text(text));
    }
    match scalar::meaning(&text) {
        Ok(Some(content)) => Ok(content),
        Ok(None) => Ok(Content::Text(text)),
        Err(reason) => {
            let word = crate::shown(&text);
            let remedy = format!("write `'{word}'` for text");
            Err(Refusal::new(place, format!("`{word}` {reason}"), remedy))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One reader for text of one byte per character, another for the rest: both see the same.
    #[test]
    fn both_readers_agree() {
        let texts = [
            "a: 1\nb: [x, 'y z', \"q\\n\"]\nc: {d: ~, e: |\n  ",
            "name: x # said\nrules:\n  - a: >-\n      one\n      two\n\n      three\n  - b: |+\n      t\n\n",
            "a: one\n  two\n\n  three\nb: 'it''s\n\n  long'\n",
            "a: &x {b: 1}\nc: *x\nd: {<<: *x, e: -}\n",
            "%YAML 1.2\n---\na: 1\n...\n",
            "---\na: 1\n---\nb: 2\n",
            "a:\r\n  - b\r\n  - c\r",
            "a: \t# said\n\tb: 1\n",
            "? a\n: b\n",
            "a: 'open\n",
            "a: b: c\n",
            "- [a, {b: c}, d\n",
            "x: \0y\n",
            "a: !!str 1\nb: !other 2\n",
            "--- a\n...",
            "",
        ];
        for text in texts {
            for end in 0..=text.len() {
                let cut = &text[..end];
                let ascii = parse_input(cut, Ascii::new(cut).expect("the text is ASCII"));
                let other = parse_input(cut, StrInput::new(cut));
                assert_eq!(format!("{ascii:?}"), format!("{other:?}"), "{cut:?}");
            }
        }
    }
}
