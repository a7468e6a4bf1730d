//! Texts that open something: made at random, shown once, kept as a hash where they need not be repeated.

use std::fmt;
use std::hint::black_box;

use sha2::{Digest, Sha256};

/// Bytes of a secret that we make.
const RANDOM: usize = 32;

/// A text that must not end up in a log.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    #[must_use]
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// 43 characters that nobody guesses.
    pub(crate) fn random() -> Self {
        let mut bytes = [0; RANDOM];
        getrandom::fill(&mut bytes).expect("the kernel gives random bytes once it has booted");
        Self(base64url(&bytes))
    }

    /// The text itself.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

pub(crate) fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Compares hashes without telling by its duration where they differ.
///
/// Nobody can choose a text whose hash comes close to a stored one, so that even a careless comparison would tell nothing
/// of use; this one is here so that nobody needs to think about it.
pub(crate) fn same_hash(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let difference = one.iter().zip(other).fold(0, |all, (a, b)| black_box(all | (a ^ b)));
    black_box(difference) == 0
}

fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let mut bits = [0; 4];
        bits[1..=group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bits);
        for index in 0..=group.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * index) & 63) as usize]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64url_is_that_of_the_standard() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foobar", "Zm9vYmFy"),
            (&[0xfb, 0xff, 0xfe], "-__-"),
        ] {
            assert_eq!(base64url(bytes), text);
        }
    }

    #[test]
    fn secrets_are_long_and_differ_and_do_not_show() {
        let (one, two) = (Secret::random(), Secret::random());
        assert_eq!(one.expose().len(), 43);
        assert_ne!(one, two);
        assert!(!format!("{one:?}").contains(one.expose()));
    }

    #[test]
    fn hashes_are_compared_to_the_last_byte() {
        let one = hash("a");
        let mut other = one;
        assert!(same_hash(&one, &other));
        other[31] ^= 1;
        assert!(!same_hash(&one, &other));
    }
}
