//! Ids of sandboxes and processes.

use std::fmt;

use belljar_codes::Code;

use crate::Invalid;
use crate::invalid::shown;

/// Length of the node's part of a sandbox id.
pub const NODE_ID_LENGTH: usize = 4;

const MIN_LENGTH: usize = 8;
/// With a five-digit port and a hyphen in front this still is one DNS label.
const MAX_LENGTH: usize = 24;
/// Twenty base32 characters are 100 bits: nobody guesses an id.
const RANDOM_LENGTH: usize = 20;
const PROCESS_PREFIX: char = 'p';

const _: () = assert!(NODE_ID_LENGTH + RANDOM_LENGTH <= MAX_LENGTH);
const _: () = assert!(RANDOM_LENGTH * 5 >= 80 && RANDOM_LENGTH * 5 <= 128);

/// The id of a sandbox: lower-case letters and digits, the first [`NODE_ID_LENGTH`] of which name the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxId(String);

/// The id of a process, unique across sandboxes.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProcessId(String);

// === impl SandboxId ===

impl SandboxId {
    /// # Errors
    /// Where `text` is not 8 to 24 lower-case letters and digits.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if is_id(text) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Invalid::new(
                Code::InvalidArgument,
                format!("`{}` is not a sandbox id", shown(text)),
                "use an id as `belljar list` shows it: 8 to 24 lower-case letters and digits",
            ))
        }
    }

    /// A new id on `node` from random bytes that nobody else has.
    ///
    /// # Errors
    /// Where `node` is not exactly [`NODE_ID_LENGTH`] lower-case letters and digits.
    pub fn from_random(node: &str, entropy: &[u8; 16]) -> Result<Self, Invalid> {
        if node.len() != NODE_ID_LENGTH || !node.bytes().all(is_id_byte) {
            return Err(Invalid::new(
                Code::InvalidArgument,
                format!("`{}` is not a node id", shown(node)),
                "use four lower-case letters and digits",
            ));
        }
        Ok(Self(format!("{node}{}", random_text(entropy))))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The node that made this sandbox.
    #[must_use]
    pub fn node(&self) -> &str {
        &self.0[..NODE_ID_LENGTH]
    }
}

impl fmt::Display for SandboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

as_checked_text!(SandboxId);

// === impl ProcessId ===

impl ProcessId {
    /// # Errors
    /// Where `text` is not a `p` followed by 7 to 23 lower-case letters and digits.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        if is_id(text) && text.starts_with(PROCESS_PREFIX) {
            Ok(Self(text.to_owned()))
        } else {
            Err(Invalid::new(
                Code::InvalidArgument,
                format!("`{}` is not a process id", shown(text)),
                "use an id as Belljar printed it: `p`, then lower-case letters and digits",
            ))
        }
    }

    /// A new id from random bytes that nobody else has.
    #[must_use]
    pub fn from_random(entropy: &[u8; 16]) -> Self {
        Self(format!("{PROCESS_PREFIX}{}", random_text(entropy)))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

as_checked_text!(ProcessId);

// === text ===

fn is_id(text: &str) -> bool {
    (MIN_LENGTH..=MAX_LENGTH).contains(&text.len()) && text.bytes().all(is_id_byte)
}

fn is_id_byte(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

/// Base32 of the first [`RANDOM_LENGTH`] groups of five bits.
fn random_text(entropy: &[u8; 16]) -> String {
    const ALPHABET: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bits = u128::from_be_bytes(*entropy);
    let mut text = String::with_capacity(RANDOM_LENGTH);
    for _ in 0..RANDOM_LENGTH {
        text.push(char::from(ALPHABET[(bits & 31) as usize]));
        bits >>= 5;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sandbox_ids_are_letters_and_digits_of_bounded_length() {
        let check = |text: &str, good: bool| {
            assert_eq!(SandboxId::parse(text).is_ok(), good, "{text:?}");
        };
        check("n001abcd", true);
        check(&"a".repeat(24), true);
        check(&"a".repeat(25), false);
        check("n001abc", false);
        check("", false);
        check("N001abcd", false);
        check("n001-abcd", false);
        check("n001abcd\n", false);
        check("n001abc\0", false);
        check("../../etc/x", false);
        check("n001abcé", false);
    }

    #[test]
    fn process_ids_begin_with_p() {
        assert!(ProcessId::parse("pabcdefg").is_ok());
        assert!(ProcessId::parse("qabcdefg").is_err());
        assert!(ProcessId::parse("p").is_err());
        assert_eq!(ProcessId::from_random(&[0; 16]).as_str(), "paaaaaaaaaaaaaaaaaaaa");
    }

    #[test]
    fn node_ids_are_checked() {
        for node in ["", "abc", "abcde", "ABCD", "ab/d", "é00"] {
            assert!(SandboxId::from_random(node, &[7; 16]).is_err(), "{node:?}");
        }
    }

    proptest! {
        #[test]
        fn random_ids_are_ids(node in "[a-z0-9]{4}", entropy: [u8; 16]) {
            let id = SandboxId::from_random(&node, &entropy).unwrap();
            prop_assert_eq!(id.node(), node.as_str());
            prop_assert_eq!(id.as_str().len(), 24);
            prop_assert_eq!(SandboxId::parse(id.as_str()).unwrap(), id);
            let process = ProcessId::from_random(&entropy);
            prop_assert_eq!(ProcessId::parse(process.as_str()).unwrap(), process);
        }

        #[test]
        fn parsing_never_panics(text: String) {
            let _ = SandboxId::parse(&text);
            let _ = ProcessId::parse(&text);
        }
    }

    #[test]
    fn every_random_bit_of_the_first_hundred_counts() {
        let reference = SandboxId::from_random("node", &[0; 16]).unwrap();
        let distinct = (0..128)
            .filter(|bit| {
                let mut entropy = [0; 16];
                entropy[bit / 8] |= 1 << (bit % 8);
                SandboxId::from_random("node", &entropy).unwrap() != reference
            })
            .count();
        assert_eq!(distinct, 100);
    }

    #[test]
    fn stored_ids_are_checked() {
        let id = SandboxId::parse("n001abcd").unwrap();
        let json = serde_json::to_string(&id).unwrap();
        assert_eq!(json, r#""n001abcd""#);
        assert_eq!(serde_json::from_str::<SandboxId>(&json).unwrap(), id);
        assert!(serde_json::from_str::<SandboxId>(r#""../x""#).is_err());
    }
}
