//! Secrets on their way into requests.

use std::fmt;

/// A secret's value. Does not print itself.
#[derive(Clone)]
pub struct SecretValue(Vec<u8>);

impl SecretValue {
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    #[must_use]
    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(…)")
    }
}
