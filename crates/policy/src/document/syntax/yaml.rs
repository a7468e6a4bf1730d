//! YAML text to a tree.
//!
//! One document, maps with text keys, anchors and aliases within the bounds, merge keys (`<<`). Tags other than those
//! of the plain types are refused: they ask a reader to make objects.

use std::borrow::Cow;
use std::collections::HashMap;

use saphyr_parser::{Event, Marker, Parser, ScalarStyle, Span, StrInput, Tag};

use super::node::{Content, Entry, MAX_DEPTH, MAX_NODES, Node, Position, Seen, push_entry};
use super::{Refusal, scalar};

/// Anchors that one document may have.
const MAX_ANCHORS: usize = 1024;

pub(super) fn parse(text: &str) -> Result<Node<'_>, Refusal> {
    let mut reader = Reader {
        events: Parser::new_from_str(text.strip_prefix('\u{feff}').unwrap_or(text)),
        anchors: HashMap::new(),
        nodes: 0,
    };
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

struct Reader<'a> {
    events: Parser<'a, StrInput<'a>>,
    /// What an anchor stands for and how many values that is.
    anchors: HashMap<usize, (Node<'a>, usize)>,
    nodes: usize,
}

impl<'a> Reader<'a> {
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
        let before = self.nodes;
        self.count(1, place)?;
        if depth > MAX_DEPTH {
            return Err(Refusal::new(
                place,
                format!("lists and maps are nested more than {MAX_DEPTH} deep"),
                "write it flatter",
            ));
        }
        let (anchor, content) = match event {
            Event::Alias(anchor) => return self.alias(anchor, place),
            Event::Scalar(text, style, anchor, tag) => {
                (anchor, scalar_content(text, style, tag.as_deref(), place)?)
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
            self.anchors.insert(anchor, (node.clone(), self.nodes - before));
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
                Event::Scalar(text, style, _, _) => (text, style == ScalarStyle::Plain),
                _ => {
                    return Err(Refusal::new(
                        place,
                        "a key is not text",
                        "use plain names as keys",
                    ));
                }
            };
            let (event, span) = self.next()?;
            let value = self.node(event, span, depth + 1)?;
            if plain && key == "<<" {
                merged.push(value);
                continue;
            }
            push_entry(&mut entries, &mut seen, Entry { key, position: place, value })?;
        }
        for source in merged {
            self.merge(&mut entries, source)?;
        }
        Ok(Content::Map(entries))
    }

    /// What `<<` brings along; fields that are written out, or came earlier, count.
    fn merge(&mut self, entries: &mut Vec<Entry<'a>>, source: Node<'a>) -> Result<(), Refusal> {
        let place = source.position;
        match source.content {
            Content::Map(more) => {
                self.count(more.len(), place)?;
                for entry in more {
                    if entries.iter().all(|known| known.key != entry.key) {
                        entries.push(entry);
                    }
                }
                Ok(())
            }
            Content::List(maps)
                if maps.iter().all(|map| matches!(map.content, Content::Map(_))) =>
            {
                maps.into_iter().try_for_each(|map| self.merge(entries, map))
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

    fn count(&mut self, more: usize, place: Position) -> Result<(), Refusal> {
        self.nodes += more;
        if self.nodes > MAX_NODES {
            return Err(Refusal::new(
                place,
                format!("the document has more than {MAX_NODES} values, aliases included"),
                "split it and join the parts with `extends`",
            ));
        }
        Ok(())
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
