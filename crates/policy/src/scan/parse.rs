//! Python text to a syntax tree, within bounds.

use std::ops::ControlFlow;

use tree_sitter::{ParseOptions, ParseState, Parser, Tree};

/// How much of a text is scanned. What agents run is a few kilobytes; a parser's tree is two hundred times its text.
pub const MAX_CODE_BYTES: usize = 256 * 1024;

/// How often the parser may ask whether to go on. It asks every hundred steps; the worst texts of [`MAX_CODE_BYTES`]
/// that were found take 12,000 questions, plain code a few hundred.
const MAX_QUESTIONS: u32 = 40_000;

/// How much of the text a finding about syntax repeats.
const MAX_WORD_CHARS: usize = 30;

/// The part of a code text that is scanned.
pub(super) struct Text<'a> {
    scanned: &'a str,
    cut: bool,
    /// Where each line begins.
    lines: Vec<usize>,
}

impl<'a> Text<'a> {
    pub(super) fn new(code: &'a str) -> Self {
        let cut = code.len() > MAX_CODE_BYTES;
        let mut end = code.len().min(MAX_CODE_BYTES);
        while !code.is_char_boundary(end) {
            end -= 1;
        }
        if cut {
            // At the end of a line, so that the cut itself is no mistake in the code.
            end = code[..end].rfind('\n').map_or(end, |newline| newline + 1);
        }
        let scanned = &code[..end];
        let breaks = scanned.match_indices('\n').map(|(at, _)| at + 1);
        Self { scanned, cut, lines: std::iter::once(0).chain(breaks).collect() }
    }

    /// Where the scan stopped, if before the end.
    pub(super) fn cut(&self) -> Option<usize> {
        self.cut.then_some(self.scanned.len())
    }

    /// `None` if the text costs the parser more than its share.
    pub(super) fn tree(&self) -> Option<Tree> {
        let mut parser = Parser::new();
        parser
            .set_language(&tree_sitter_python::LANGUAGE.into())
            .expect("the grammar is of a version that the parser knows");
        let bytes = self.scanned.as_bytes();
        let mut questions = 0;
        let mut go_on = |_: &ParseState| {
            questions += 1;
            if questions > MAX_QUESTIONS {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        };
        parser.parse_with_options(
            &mut |at, _| bytes.get(at..).unwrap_or_default(),
            None,
            Some(ParseOptions::new().progress_callback(&mut go_on)),
        )
    }

    pub(super) fn of(&self, node: tree_sitter::Node<'_>) -> &'a str {
        self.scanned.get(node.byte_range()).unwrap_or_default()
    }

    /// Line and column, counted from one, the column in characters.
    pub(super) fn position(&self, at: usize) -> (u32, u32) {
        let line = self.lines.partition_point(|begin| *begin <= at).saturating_sub(1);
        let before = self.scanned.get(self.lines[line]..at).unwrap_or_default();
        let number = |count: usize| u32::try_from(count).expect("the text is short") + 1;
        (number(line), number(before.chars().count()))
    }

    /// The beginning of what stands at a place, on its line.
    pub(super) fn word(&self, at: usize) -> &'a str {
        let rest = self.scanned.get(at..).unwrap_or_default();
        let line = rest.lines().next().unwrap_or_default();
        let end = line.char_indices().nth(MAX_WORD_CHARS).map_or(line.len(), |(at, _)| at);
        line[..end].trim_end()
    }
}
