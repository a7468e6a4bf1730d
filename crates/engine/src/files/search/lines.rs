//! Contents cut into lines, with a bounded part of each in memory.

use super::matcher::ContentMatcher;

/// As much of a line is searched; the rest of a longer one is passed over.
const LONGEST_LINE: usize = 64 << 10;

/// As much of a line is shown, and of that before the match.
const SHOWN: usize = 400;
const SHOWN_BEFORE: usize = 120;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) line: u64,
    pub(super) column: u64,
    pub(super) text: String,
}

#[derive(Debug)]
pub(super) struct Lines {
    /// A piece of the file and how much of it is done with.
    piece: Vec<u8>,
    taken: usize,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    number: u64,
    ended: bool,
}

impl Lines {
    pub(super) fn new() -> Self {
        Self { piece: Vec::new(), taken: 0, line: Vec::new(), number: 1, ended: false }
    }

    /// Adds the next piece of the file; `false` if it is not text.
    pub(super) fn push(&mut self, piece: Vec<u8>) -> bool {
        if piece.contains(&0) {
            return false;
        }
        self.piece = piece;
        self.taken = 0;
        true
    }

    /// No more pieces come; whether there is a last line without an end.
    pub(super) fn end(&mut self) -> bool {
        let first = !self.ended;
        self.ended = true;
        first && !self.line.is_empty()
    }

    /// The next line of what is there that matches. Everything before is done with.
    pub(super) fn find(&mut self, content: &ContentMatcher) -> Option<Found> {
        loop {
            let rest = self.piece.get(self.taken..).unwrap_or_default();
            let end = rest.iter().position(|&byte| byte == b'\n');
            let part = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
            let room = LONGEST_LINE - self.line.len();
            self.line.extend_from_slice(part.get(..part.len().min(room)).unwrap_or_default());
            self.taken += part.len() + usize::from(end.is_some());
            let is_last = self.ended && !self.line.is_empty();
            if end.is_none() && !is_last {
                return None;
            }
            let found = content.find(&self.line).map(|place| self.found(place));
            self.line.clear();
            self.number += 1;
            if found.is_some() {
                return found;
            }
        }
    }

    fn found(&self, (start, _): (usize, usize)) -> Found {
        let line = self.line.strip_suffix(b"\r").unwrap_or(&self.line);
        // A line that fits is shown whole, of a longer one what is around the match.
        let from = if line.len() <= SHOWN { 0 } else { start.saturating_sub(SHOWN_BEFORE) };
        let to = line.len().min(from + SHOWN);
        let text = String::from_utf8_lossy(line.get(from..to).unwrap_or_default()).into_owned();
        Found { line: self.number, column: start as u64 + 1, text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(pieces: &[&[u8]], pattern: &str) -> Vec<(u64, u64, String)> {
        let matcher = ContentMatcher::new(pattern, true, true).unwrap();
        let mut lines = Lines::new();
        let mut all = Vec::new();
        let mut take = |lines: &mut Lines| {
            while let Some(found) = lines.find(&matcher) {
                all.push((found.line, found.column, found.text));
            }
        };
        for piece in pieces {
            if !lines.push(piece.to_vec()) {
                return all;
            }
            take(&mut lines);
        }
        if lines.end() {
            take(&mut lines);
        }
        all
    }

    #[test]
    fn every_way_of_cutting_gives_the_same() {
        let text = b"one\ntwo x\r\n\nthree xx\nx";
        let expected =
            [(2, 5, "two x".to_owned()), (4, 7, "three xx".to_owned()), (5, 1, "x".to_owned())];
        for cut in 0..=text.len() {
            assert_eq!(search(&[&text[..cut], &text[cut..]], "x"), expected, "{cut}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(search(&single, "x"), expected);
    }

    #[test]
    fn long_lines_are_bounded() {
        let mut text = vec![b'a'; 3 * LONGEST_LINE];
        text[1000] = b'x';
        text[2 * LONGEST_LINE] = b'y';
        text.extend_from_slice(b"\nlast y\n");
        let found = search(&text.chunks(1000).collect::<Vec<_>>(), "x|y");
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].0, found[0].1, found[0].2.len()), (1, 1001, SHOWN));
        assert_eq!(found[1], (2, 6, "last y".to_owned()));
    }

    #[test]
    fn binary_is_passed_over() {
        assert_eq!(search(&[b"x\n", b"a\0b\nx\n"], "x"), [(1, 1, "x".to_owned())]);
        // Not text in any encoding, but not binary either.
        assert_eq!(search(&[b"\xffx\n"], "x"), [(1, 2, "\u{fffd}x".to_owned())]);
        assert_eq!(search(&[b""], "^$"), []);
        assert_eq!(search(&[b"\n"], "^$"), [(1, 1, String::new())]);
    }
}
