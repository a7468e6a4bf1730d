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
/// Seven characters count 16 milliseconds each for 17 years before they begin anew.
const TIME_LENGTH: usize = 7;
const TIME_UNIT_MS: u64 = 16;
/// Sixteen are 80 bits: still nobody guesses an id.
const PROCESS_RANDOM_LENGTH: usize = 16;

const _: () = assert!(NODE_ID_LENGTH + RANDOM_LENGTH <= MAX_LENGTH);
const _: () = assert!(1 + TIME_LENGTH + PROCESS_RANDOM_LENGTH <= MAX_LENGTH);

/// In the order of their bytes.
const ALPHABET: &[u8; 32] = b"234567abcdefghijklmnopqrstuvwxyz";

/// The id of a sandbox: lower-case letters and digits, the first [`NODE_ID_LENGTH`] of which name the node.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxId(String);

/// The id of a process, unique across sandboxes. Those of processes that started at about the same time are close to each
/// other, so that their records are, too: recording one touches few pages.
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

    /// A new id for a process that starts now, from random bytes that nobody else has.
    #[must_use]
    pub fn new(now_ms: u64, entropy: &[u8; 16]) -> Self {
        let time = base32((now_ms / TIME_UNIT_MS).into(), TIME_LENGTH);
        let random = base32(u128::from_be_bytes(*entropy), PROCESS_RANDOM_LENGTH);
        Self(format!("{PROCESS_PREFIX}{time}{random}"))
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

/// A word from random bytes that nobody else has.
#[must_use]
pub fn random_text(entropy: &[u8; 16]) -> String {
    base32(u128::from_be_bytes(*entropy), RANDOM_LENGTH)
}

/// The last `length` groups of five bits, the most significant first.
fn base32(bits: u128, length: usize) -> String {
    let group = |number: usize| ALPHABET[(bits >> (5 * number) & 31) as usize];
    (0..length).rev().map(|number| char::from(group(number))).collect()
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
        assert_eq!(ProcessId::new(0, &[0; 16]).as_str(), "p22222222222222222222222");
    }

    #[test]
    fn node_ids_are_checked() {
        for node in ["", "abc", "abcde", "ABCD", "ab/d", "é00"] {
            assert!(SandboxId::from_random(node, &[7; 16]).is_err(), "{node:?}");
        }
    }

    proptest! {
        #[test]
        fn random_ids_are_ids(node in "[a-z0-9]{4}", now_ms: u64, entropy: [u8; 16]) {
            let id = SandboxId::from_random(&node, &entropy).unwrap();
            prop_assert_eq!(id.node(), node.as_str());
            prop_assert_eq!(id.as_str().len(), 24);
            prop_assert_eq!(SandboxId::parse(id.as_str()).unwrap(), id);
            let process = ProcessId::new(now_ms, &entropy);
            prop_assert_eq!(ProcessId::parse(process.as_str()).unwrap(), process);
        }

        #[test]
        fn parsing_never_panics(text: String) {
            let _ = SandboxId::parse(&text);
            let _ = ProcessId::parse(&text);
        }
    }

    /// How many bits of what is random make another id.
    fn bits_that_count<T: PartialEq>(id: impl Fn(&[u8; 16]) -> T) -> usize {
        let differs = |bit: &usize| {
            let mut entropy = [0; 16];
            entropy[bit / 8] |= 1 << (bit % 8);
            id(&entropy) != id(&[0; 16])
        };
        (0..128).filter(differs).count()
    }

    #[test]
    fn nobody_guesses_an_id() {
        let sandbox = |entropy: &_| SandboxId::from_random("node", entropy).unwrap();
        assert_eq!(bits_that_count(sandbox), 100);
        assert_eq!(bits_that_count(|entropy| ProcessId::new(1, entropy)), 80);
    }

    #[test]
    fn process_ids_go_by_time() {
        let start = 1_794_846_245_309;
        let ids: Vec<_> = [1, 20, 400, 100_000, 1 << 38]
            .map(|later| ProcessId::new(start + later, &[255 - later.to_le_bytes()[0]; 16]))
            .into();
        assert!(ids.is_sorted(), "{ids:?}");
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
