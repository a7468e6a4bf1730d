//! Names that people give to sandboxes.

use std::fmt;

use belljar_codes::Code;

use crate::Invalid;
use crate::invalid::shown;

/// As long as a DNS label, so that a name can become a host name.
const MAX_LENGTH: usize = 63;

const RULE: &str =
    "use 1 to 63 lower-case letters, digits, `-`, `_` or `.`, beginning with a letter or digit";

/// A name for a sandbox: unique among the sandboxes of one tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SandboxName(String);

impl SandboxName {
    /// # Errors
    /// Names the first character that a name may not have, escaped.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refuse = |reason: String| {
            Err(Invalid::new(
                Code::InvalidName,
                format!("sandbox name `{}` {reason}", shown(text)),
                RULE,
            ))
        };
        let Some(first) = text.chars().next() else {
            return Err(Invalid::new(Code::InvalidName, "the sandbox name is empty", RULE));
        };
        if let Some(bad) = text.chars().find(|&c| !is_name_char(c)) {
            return refuse(format!("contains `{}`", bad.escape_debug()));
        }
        if !first.is_ascii_alphanumeric() {
            return refuse(format!("begins with `{first}`"));
        }
        if text.len() > MAX_LENGTH {
            return refuse(format!("is {} characters long", text.len()));
        }
        Ok(Self(text.to_owned()))
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SandboxName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

as_checked_text!(SandboxName);

fn is_name_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn good_names() {
        for name in ["a", "0", "web-1", "a.b_c-d", &"x".repeat(63)] {
            assert_eq!(SandboxName::parse(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn bad_names_show_the_character() {
        let check = |text: &str, expected: &str| {
            let refused = SandboxName::parse(text).unwrap_err();
            assert_eq!(refused.code, Code::InvalidName);
            assert_eq!(refused.message, expected);
        };
        check("", "the sandbox name is empty");
        check("a\0b", "sandbox name `a\\0b` contains `\\0`");
        check("a\nb", "sandbox name `a\\nb` contains `\\n`");
        check("a b", "sandbox name `a b` contains ` `");
        check("Web", "sandbox name `Web` contains `W`");
        check("a/b", "sandbox name `a/b` contains `/`");
        check("naïve", "sandbox name `naïve` contains `ï`");
        check("\u{1b}[31m", "sandbox name `\\u{1b}[31m` contains `\\u{1b}`");
        check("-rf", "sandbox name `-rf` begins with `-`");
        check("..", "sandbox name `..` begins with `.`");
        check(
            &"x".repeat(64),
            &format!("sandbox name `{}…` is 64 characters long", "x".repeat(60)),
        );
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_keeps_the_text(text in "\\PC{0,80}|[a-z0-9._-]{0,70}") {
            if let Ok(name) = SandboxName::parse(&text) {
                prop_assert_eq!(name.as_str(), text.as_str());
            }
        }
    }
}
