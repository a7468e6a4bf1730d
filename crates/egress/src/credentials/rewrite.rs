//! Replaces texts in a stream: secrets by asterisks in what comes back, placeholders by secrets in what is sent.
//!
//! Works on chunks of any size; only bytes that could be the beginning of a text wait for the next chunk, so that
//! streams flow. A secret becomes as many asterisks as it had bytes: lengths, ranges and offsets stay true.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::memmem::Finder;

/// Shorter secrets occur by chance; who uses one has none.
const MIN_SECRET: usize = 4;

const MASK: u8 = b'*';

/// What is replaced, and by what. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Replacements(Arc<[(Finder<'static>, Vec<u8>)]>);

/// Goes along one body.
pub(crate) struct Rewriter {
    replacements: Replacements,
    /// The beginning of a text, perhaps.
    held: BytesMut,
}

impl Replacements {
    /// Masks secrets.
    pub(crate) fn masking<T: AsRef<[u8]>>(secrets: impl IntoIterator<Item = T>) -> Self {
        let secrets = secrets.into_iter().map(|secret| secret.as_ref().to_vec());
        let long = secrets.filter(|secret| secret.len() >= MIN_SECRET);
        Self::new(long.map(|secret| {
            let mask = vec![MASK; secret.len()];
            (secret, mask)
        }))
    }

    /// Puts the second in the place of the first. None of the texts is empty.
    pub(crate) fn new(texts: impl IntoIterator<Item = (Vec<u8>, Vec<u8>)>) -> Self {
        let mut texts: Vec<_> = texts.into_iter().filter(|(text, _)| !text.is_empty()).collect();
        // The longest first: where one begins with another, all of it goes.
        texts.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then(one.cmp(other)));
        texts.dedup_by(|(one, _), (other, _)| one == other);
        let found = texts.into_iter().map(|(text, by)| (Finder::new(&text).into_owned(), by));
        Self(found.collect())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A text that is complete, rewritten; `None` where there was nothing to replace.
    pub(crate) fn apply(&self, text: &[u8]) -> Option<Vec<u8>> {
        let mut out = BytesMut::new();
        let end = self.replace(text, &mut out);
        (end > 0).then(|| {
            out.extend_from_slice(&text[end..]);
            out.to_vec()
        })
    }

    /// Writes what `data` has up to the end of the last text that is replaced, and tells where that is.
    ///
    /// Each text is looked for from where it was found last, so that the time goes with the length of `data` however often
    /// one of them occurs.
    fn replace(&self, data: &[u8], out: &mut BytesMut) -> usize {
        let find = |text: &Finder<'_>, from: usize| Some(from + text.find(&data[from..])?);
        let mut next: Vec<_> = self.0.iter().map(|(text, by)| (find(text, 0), text, by)).collect();
        let mut end = 0;
        loop {
            // Of those that begin at one place the longest, which is the first.
            let first = next.iter().filter_map(|(at, text, by)| Some(((*at)?, *text, *by)));
            let Some((at, text, by)) = first.min_by_key(|(at, ..)| *at) else { return end };
            out.extend_from_slice(&data[end..at]);
            out.extend_from_slice(by);
            end = at + text.needle().len();
            for (at, text, _) in next.iter_mut().filter(|(at, ..)| at.is_some_and(|at| at < end)) {
                *at = find(text, end);
            }
        }
    }

    /// How many bytes at the end of `data` one of the texts may begin with.
    fn begun(&self, data: &[u8]) -> usize {
        let begun = self.0.iter().map(|(text, _)| {
            let text = text.needle();
            let longest = data.len().min(text.len() - 1);
            (1..=longest).rev().find(|length| data.ends_with(&text[..*length])).unwrap_or(0)
        });
        begun.max().unwrap_or(0)
    }
}

impl Rewriter {
    pub(crate) fn new(replacements: Replacements) -> Self {
        Self { replacements, held: BytesMut::new() }
    }

    /// What may go on of what has come so far.
    pub(crate) fn push(&mut self, chunk: Bytes) -> Bytes {
        let data = if self.held.is_empty() {
            chunk
        } else {
            let mut data = std::mem::take(&mut self.held);
            data.extend_from_slice(&chunk);
            data.freeze()
        };
        let mut out = BytesMut::new();
        let end = self.replacements.replace(&data, &mut out);
        let begun = self.replacements.begun(&data[end..]);
        let whole = data.len() - begun;
        self.held.extend_from_slice(&data[whole..]);
        if end == 0 {
            // The usual case: nothing is copied.
            return data.slice(..whole);
        }
        out.extend_from_slice(&data[end..whole]);
        out.freeze()
    }

    /// What was held back, when nothing more comes.
    pub(crate) fn finish(&mut self) -> Bytes {
        std::mem::take(&mut self.held).freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rewrite(replacements: Replacements, chunks: &[&str]) -> String {
        let mut rewriter = Rewriter::new(replacements);
        let mut out = Vec::new();
        for chunk in chunks {
            out.extend_from_slice(&rewriter.push(Bytes::copy_from_slice(chunk.as_bytes())));
        }
        out.extend_from_slice(&rewriter.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn secrets_are_masked_wherever_chunks_end() {
        let check = |secrets: &[&str], chunks: &[&str], expected: &str| {
            assert_eq!(rewrite(Replacements::masking(secrets), chunks), expected, "{chunks:?}");
        };
        check(&["hunter2"], &["a hunter2 b"], "a ******* b");
        check(&["hunter2"], &["a hun", "ter2 b"], "a ******* b");
        check(&["hunter2"], &["h", "u", "n", "t", "e", "r", "2"], "*******");
        check(&["hunter2"], &["hunter2hunter2hunter"], "**************hunter");
        check(&["hunter2"], &["hun", "hunter2"], "hun*******");
        check(&["hunter2", "hunter2-long"], &["hunter2-long hunter2"], "************ *******");
        check(&["aaab"], &["aaaaab", "aa", "ab"], "aa********");
        check(&["abc"], &["abc"], "abc");
        check(&[], &["abc"], "abc");
        check(&["hunter2"], &[], "");
    }

    #[test]
    fn placeholders_become_secrets() {
        let pairs = || Replacements::new([(b"PLACEHOLDER".to_vec(), b"s3".to_vec())]);
        assert_eq!(rewrite(pairs(), &["{\"k\": \"PLACE", "HOLDER\"}"]), "{\"k\": \"s3\"}");
        assert_eq!(pairs().apply(b"x PLACEHOLDER").as_deref(), Some(&b"x s3"[..]));
        assert_eq!(pairs().apply(b"x PLACEHOLDE"), None);
    }

    #[test]
    fn only_what_may_be_a_secret_waits() {
        let mut rewriter = Rewriter::new(Replacements::masking(["hunter2"]));
        assert_eq!(&rewriter.push(Bytes::from_static(b"data: x\n\n"))[..], b"data: x\n\n");
        assert_eq!(&rewriter.push(Bytes::from_static(b"data: hunt"))[..], b"data: ");
        assert_eq!(&rewriter.push(Bytes::from_static(b"ing"))[..], b"hunting");
    }

    #[test]
    fn many_are_as_fast_as_one() {
        // Quadratic, this would take minutes.
        let pairs = Replacements::new([
            (b"PLACEHOLDER".to_vec(), b"secret".to_vec()),
            (b"ANOTHER-ONE".to_vec(), b"unused".to_vec()),
        ]);
        let text = b"PLACEHOLDER ".repeat(400_000);
        assert_eq!(pairs.apply(&text).unwrap(), b"secret ".repeat(400_000));
    }

    proptest! {
        #[test]
        fn no_secret_gets_through(
            secrets in proptest::collection::vec("[ab]{4,7}", 1..3),
            text in "[abc]{0,60}",
            splits in proptest::collection::vec(0usize..60, 0..8),
        ) {
            let mut ends: Vec<_> = splits.into_iter().map(|at| at.min(text.len())).collect();
            ends.push(text.len());
            ends.sort_unstable();
            let mut from = 0;
            let mut chunks = Vec::new();
            for end in ends {
                chunks.push(&text[from..end]);
                from = end;
            }
            let out = rewrite(Replacements::masking(&secrets), &chunks);
            prop_assert_eq!(out.len(), text.len());
            for secret in &secrets {
                prop_assert!(!out.contains(secret), "{} in {}", secret, out);
            }
            for (out, text) in out.chars().zip(text.chars()) {
                prop_assert!(out == '*' || out == text);
            }
        }
    }
}
