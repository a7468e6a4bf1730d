//! Output kept in memory, up to a cap.
//!
//! The first half of the cap and the last half are kept, because errors stand at the end; what is missing in between
//! is marked where it is missing.

use std::collections::VecDeque;

/// Output of one stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Captured {
    /// With a marker where bytes are missing.
    pub data: Vec<u8>,
    pub truncated: bool,
    /// How many bytes are missing.
    pub dropped: u64,
}

#[derive(Debug)]
pub(crate) struct Capture {
    head: Vec<u8>,
    tail: VecDeque<u8>,
    head_cap: usize,
    tail_cap: usize,
    dropped: u64,
    /// Some of it was never here.
    missed: bool,
}

impl Capture {
    pub(crate) fn new(cap: usize) -> Self {
        let tail_cap = cap / 2;
        Self {
            head: Vec::new(),
            tail: VecDeque::new(),
            head_cap: cap - tail_cap,
            tail_cap,
            dropped: 0,
            missed: false,
        }
    }

    pub(crate) fn push(&mut self, data: &[u8]) {
        let room = self.head_cap - self.head.len();
        let (head, rest) = data.split_at(data.len().min(room));
        self.head.extend_from_slice(head);
        // Of a piece larger than the tail only its own end can stay.
        let skipped = rest.len().saturating_sub(self.tail_cap);
        let rest = &rest[skipped..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_cap);
        self.tail.drain(..excess);
        self.tail.extend(rest);
        self.drop_more((skipped + excess) as u64);
    }

    /// So many bytes are not there to be pushed. What is kept afterwards is the end.
    pub(crate) fn miss(&mut self, bytes: u64) {
        if bytes > 0 {
            self.drop_more(bytes);
            self.drop_more(self.tail.len() as u64);
            self.tail.clear();
            self.head_cap = self.head.len();
            self.missed = true;
        }
    }

    /// How much is missing may be what an agent made up.
    const fn drop_more(&mut self, bytes: u64) {
        self.dropped = self.dropped.saturating_add(bytes);
    }

    /// `logged`: whether the process log has all that was pushed.
    pub(crate) fn finish(self, logged: bool) -> Captured {
        let mut data = self.head;
        if self.dropped > 0 {
            let place =
                if logged && !self.missed { "; full output in the process log" } else { "" };
            let marker =
                format!("\n[belljar: output truncated, {} bytes dropped{place}]\n", self.dropped);
            data.extend_from_slice(marker.as_bytes());
        }
        data.extend(self.tail);
        Captured { data, truncated: self.dropped > 0, dropped: self.dropped }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_marker_stands_where_bytes_are_missing() {
        let mut capture = Capture::new(8);
        capture.push(b"abcdefghijkl");
        let captured = capture.finish(true);
        assert_eq!(
            String::from_utf8(captured.data).unwrap(),
            "abcd\n[belljar: output truncated, 4 bytes dropped; full output in the process log]\nijkl"
        );
        assert!(captured.truncated);
    }

    #[test]
    fn what_is_missing_is_told() {
        let check = |missing_after: usize, expected: &str, dropped| {
            let mut capture = Capture::new(8);
            for (index, piece) in ["abc", "def"].iter().enumerate() {
                capture.miss(if index == missing_after { 5 } else { 0 });
                capture.push(piece.as_bytes());
            }
            capture.miss(if missing_after == 2 { 5 } else { 0 });
            let captured = capture.finish(true);
            assert_eq!((captured.truncated, captured.dropped), (dropped > 0, dropped));
            let marker = format!("\n[belljar: output truncated, {dropped} bytes dropped]\n");
            assert_eq!(String::from_utf8(captured.data).unwrap(), expected.replace("|", &marker));
        };
        check(0, "|cdef", 7);
        check(1, "abc|def", 5);
        check(2, "abcd|", 7);
        check(3, "abcdef", 0);
    }

    #[test]
    fn what_an_agent_makes_up_is_counted_as_far_as_it_goes() {
        let mut capture = Capture::new(8);
        capture.push(b"abcdef");
        for _ in 0..2 {
            capture.miss(u64::MAX);
            capture.push(b"ghijkl");
        }
        let captured = capture.finish(true);
        assert_eq!((captured.dropped, captured.data.ends_with(b"ijkl")), (u64::MAX, true));
    }

    proptest! {
        #[test]
        fn memory_is_bounded_and_nothing_is_invented(
            cap in 0usize..64,
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..20),
        ) {
            let mut capture = Capture::new(cap);
            let all = pieces.concat();
            for piece in &pieces {
                capture.push(piece);
                prop_assert!(capture.head.len() + capture.tail.len() <= cap);
            }
            let kept = all.len().min(cap);
            prop_assert_eq!(capture.dropped, (all.len() - kept) as u64);
            if all.len() <= cap {
                let captured = capture.finish(false);
                prop_assert_eq!(captured.data, all);
            } else {
                let tail: Vec<u8> = capture.tail.iter().copied().collect();
                prop_assert!(all.starts_with(&capture.head));
                prop_assert!(all.ends_with(&tail));
                prop_assert_eq!(capture.head.len() + tail.len(), cap);
            }
        }
    }
}
