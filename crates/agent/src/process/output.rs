//! Output that was read from a process and not yet acknowledged by the host.
//!
//! Offsets count bytes since the process started. What is kept is the newest part of what was produced; it shrinks
//! when the host acknowledges, or when nobody is there to take it.

use std::collections::VecDeque;

#[derive(Debug, Default)]
pub(crate) struct Kept {
    bytes: VecDeque<u8>,
    end: u64,
}

impl Kept {
    /// The offset of the oldest byte kept.
    pub(crate) fn start(&self) -> u64 {
        self.end - self.bytes.len() as u64
    }

    /// The offset right after the newest byte.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
        self.end += bytes.len() as u64;
    }

    /// Lets go of everything below an offset; offsets outside of what is kept are moved to its nearest end.
    pub(crate) fn release_below(&mut self, offset: u64) {
        let count = offset.clamp(self.start(), self.end) - self.start();
        self.bytes.drain(..count as usize);
    }

    /// Lets go of the oldest bytes so that no more than `limit` stay; how many went.
    pub(crate) fn release_above(&mut self, limit: usize) -> u64 {
        let excess = self.bytes.len().saturating_sub(limit);
        self.bytes.drain(..excess);
        excess as u64
    }

    /// The bytes from an offset on, at most `limit`, in two parts; and the offset they really start at.
    pub(crate) fn since(&self, offset: u64, limit: usize) -> (u64, [&[u8]; 2]) {
        let from = offset.clamp(self.start(), self.end);
        let skip = (from - self.start()) as usize;
        let size = (self.bytes.len() - skip).min(limit);
        let (front, back) = self.bytes.as_slices();
        let in_front = front.get(skip..).unwrap_or_default();
        let in_front = in_front.get(..size).unwrap_or(in_front);
        let in_back = back.get(skip.saturating_sub(front.len())..).unwrap_or_default();
        let in_back = in_back.get(..size - in_front.len()).unwrap_or(in_back);
        (from, [in_front, in_back])
    }

    /// Gives memory back that is not in use.
    pub(crate) fn trim(&mut self) {
        if self.bytes.is_empty() {
            self.bytes = VecDeque::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(kept: &Kept, offset: u64, limit: usize) -> (u64, Vec<u8>) {
        let (from, parts) = kept.since(offset, limit);
        (from, parts.concat())
    }

    #[test]
    fn keeps_offsets_while_it_shrinks() {
        let mut kept = Kept::default();
        kept.push(b"hello ");
        kept.push(b"world");
        assert_eq!((kept.start(), kept.end()), (0, 11));
        assert_eq!(copy(&kept, 6, 3), (6, b"wor".to_vec()));
        kept.release_below(4);
        assert_eq!(copy(&kept, 0, 99), (4, b"o world".to_vec()));
        assert_eq!(kept.release_above(3), 4);
        assert_eq!((kept.start(), kept.end(), kept.len()), (8, 11, 3));
        kept.release_below(u64::MAX);
        assert_eq!((kept.start(), kept.end()), (11, 11));
        assert_eq!(copy(&kept, 3, 99), (11, vec![]));
    }

    #[test]
    fn copies_across_the_ring() {
        let mut kept = Kept::default();
        let mut all = Vec::new();
        for round in 0..200u8 {
            let piece = vec![round; usize::from(round) % 37 + 1];
            all.extend_from_slice(&piece);
            kept.push(&piece);
            kept.release_above(100);
            for offset in kept.start()..=kept.end() {
                for limit in [0, 1, 50, 100] {
                    let (from, copy) = copy(&kept, offset, limit);
                    assert_eq!(from, offset);
                    let expected = &all[offset as usize..][..copy.len()];
                    assert_eq!(copy, expected);
                    assert_eq!(copy.len(), limit.min((kept.end() - offset) as usize));
                }
            }
        }
    }
}
