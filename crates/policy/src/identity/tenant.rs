//! Names of tenants.

use std::fmt;

use belljar_codes::Code;

use crate::Invalid;
use crate::invalid::shown;

/// Leaves room in a DNS label for what is put before or after it.
const MAX_LENGTH: usize = 40;

const DEFAULT: &str = "default";

const RULE: &str =
    "use 1 to 40 lower-case letters, digits or `-`, beginning and ending with a letter or digit";

/// Whose a sandbox is. Names of sandboxes are unique per tenant, and one tenant sees nothing of another.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TenantId(String);

impl TenantId {
    /// # Errors
    /// Where `text` is not a lower-case DNS label of at most 40 characters.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        let refuse = |reason: String| {
            Err(Invalid::new(Code::InvalidName, format!("tenant `{}` {reason}", shown(text)), RULE))
        };
        let (Some(first), Some(last)) = (text.chars().next(), text.chars().next_back()) else {
            return Err(Invalid::new(Code::InvalidName, "the tenant's name is empty", RULE));
        };
        if let Some(bad) = text.chars().find(|&c| !is_label_char(c)) {
            return refuse(format!("contains `{}`", bad.escape_debug()));
        }
        if first == '-' || last == '-' {
            return refuse("begins or ends with `-`".to_owned());
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

/// Whose everything is where nobody speaks of tenants.
impl Default for TenantId {
    fn default() -> Self {
        Self(DEFAULT.to_owned())
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

as_checked_text!(TenantId);

fn is_label_char(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn good_tenants() {
        for name in ["a", "0", "team-1", &"x".repeat(40), "default"] {
            assert_eq!(TenantId::parse(name).unwrap().as_str(), name);
        }
        assert_eq!(TenantId::parse("default").unwrap(), TenantId::default());
    }

    #[test]
    fn bad_tenants_show_why() {
        let check = |text: &str, expected: &str| {
            let refused = TenantId::parse(text).unwrap_err();
            assert_eq!((refused.code, refused.message.as_str()), (Code::InvalidName, expected));
        };
        check("", "the tenant's name is empty");
        check("A", "tenant `A` contains `A`");
        check("a.b", "tenant `a.b` contains `.`");
        check("a\nb", "tenant `a\\nb` contains `\\n`");
        check("../x", "tenant `../x` contains `.`");
        check("-a", "tenant `-a` begins or ends with `-`");
        check("a-", "tenant `a-` begins or ends with `-`");
        check(&"x".repeat(41), &format!("tenant `{}` is 41 characters long", "x".repeat(41)));
    }

    proptest! {
        #[test]
        fn parsing_never_panics_and_keeps_the_text(text in "\\PC{0,50}|[a-z0-9-]{0,50}") {
            if let Ok(tenant) = TenantId::parse(&text) {
                prop_assert_eq!(tenant.as_str(), text.as_str());
            }
        }
    }
}
