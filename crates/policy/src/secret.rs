//! Names of secrets, and the type that holds one in memory.
//!
//! A name may be shown anywhere. A value shows itself nowhere: it has no text form, no serialised form, and its debug
//! form says only that it is there. Not here: where values come from and how they are kept.

use std::fmt;
use std::sync::Arc;

use belljar_codes::Code;

use crate::Invalid;
use crate::identity::as_checked_text;
use crate::invalid::shown;

const MAX_NAME: usize = 128;

/// More is a file, not a secret that a request can carry.
const MAX_VALUE: usize = 64 << 10;

const RULE: &str =
    "use 1 to 128 letters, digits, `_`, `-` or `.`, beginning with a letter, a digit or `_`";

/// What a secret is called, within its tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SecretName(String);

/// A secret itself.
///
/// It can be used, compared and copied, and not printed.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretValue(Arc<str>);

impl SecretName {
    /// # Errors
    /// Where `text` cannot be a name.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refuse = |reason: String| {
            Err(Invalid::new(Code::InvalidName, format!("secret `{}` {reason}", shown(text)), RULE))
        };
        let Some(first) = text.chars().next() else {
            return Err(Invalid::new(Code::InvalidName, "the secret's name is empty", RULE));
        };
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
        if let Some(bad) = text.chars().find(|&c| !allowed(c)) {
            return refuse(format!("contains `{}`", bad.escape_debug()));
        }
        if matches!(first, '-' | '.') {
            return refuse(format!("begins with `{first}`"));
        }
        if text.len() > MAX_NAME {
            return refuse(format!("is {} characters long", text.len()));
        }
        Ok(Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SecretName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

as_checked_text!(SecretName);

impl SecretValue {
    /// # Errors
    /// Where the text is empty or too long. What is refused is not repeated.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self, Invalid> {
        let text = text.into();
        let reason = match text.len() {
            0 => "the secret is empty",
            1..=MAX_VALUE => return Ok(Self(text)),
            _ => "the secret is longer than 64 KiB",
        };
        Err(Invalid::new(Code::InvalidArgument, reason, "give the value itself, as text"))
    }

    /// The text itself, for the one place that needs it.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        for name in ["a", "GITHUB_TOKEN", "openai.key-2", "_x", &"x".repeat(128)] {
            assert_eq!(SecretName::parse(name).unwrap().as_str(), name);
        }
        for name in ["", "-a", ".a", "a b", "a/b", "ä", "a\0", "a\n", &"x".repeat(129)] {
            assert_eq!(SecretName::parse(name).unwrap_err().code, Code::InvalidName, "{name:?}");
        }
    }

    #[test]
    fn values_do_not_show_themselves() {
        let value = SecretValue::new("hunter2").unwrap();
        assert_eq!(format!("{value:?} {:#?}", Some(&value)).matches("hunter2").count(), 0);
        assert_eq!(value.expose(), "hunter2");
        let long = "hunter2".repeat(10_000);
        let refused = SecretValue::new(long).unwrap_err();
        assert!(!format!("{refused:?}").contains("hunter2"));
        assert!(SecretValue::new("").is_err());
    }
}
