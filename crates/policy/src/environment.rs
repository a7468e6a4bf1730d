//! Environment variables for the workload.
//!
//! Names that make a loader, an interpreter or the C library run or read something else than the program meant are
//! stripped before a command starts, and the caller is told which. They are data: see `dangerous.rs`.

mod dangerous;

pub use dangerous::dangerous;

use std::collections::BTreeMap;

use belljar_codes::Code;
use serde::{Deserialize, Serialize};

use crate::Invalid;
use crate::invalid::shown;

const MAX_NAME: usize = 255;
/// The kernel's limit on one string of an environment (MAX_ARG_STRLEN), less a name.
const MAX_VALUE: usize = 128 * 1024 - 512;
/// A part of the kernel's limit on arguments and environment together.
const MAX_TOTAL: usize = 1024 * 1024;
const MAX_COUNT: usize = 4096;

/// Names and values, checked.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Environment(BTreeMap<String, String>);

impl Environment {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Parses `NAME=VALUE` entries; of entries with the same name the last counts.
    ///
    /// # Errors
    /// Where an entry has no `=`, a name that is none, a NUL byte, or is too large.
    pub fn parse<'a>(entries: impl IntoIterator<Item = &'a str>) -> Result<Self, Invalid> {
        let mut environment = Self::new();
        for entry in entries {
            let Some((name, value)) = entry.split_once('=') else {
                return Err(Invalid::new(
                    Code::InvalidArgument,
                    format!("environment entry `{}` has no `=`", shown(entry)),
                    "write `NAME=VALUE`",
                ));
            };
            environment.set(name, value)?;
        }
        Ok(environment)
    }

    /// # Errors
    /// As [`Environment::parse`].
    pub fn set(&mut self, name: &str, value: &str) -> Result<(), Invalid> {
        if let Some(reason) = name_refusal(name) {
            return Err(Invalid::new(
                Code::InvalidArgument,
                format!("environment name `{}` {reason}", shown(name)),
                "use letters, digits and `_`, not beginning with a digit",
            ));
        }
        if value.contains('\0') {
            return Err(Invalid::new(
                Code::InvalidArgument,
                format!("the value of environment variable `{name}` contains a NUL byte"),
                "leave out the NUL byte, or pass the value in a file",
            ));
        }
        let total = self.size() + name.len() + value.len();
        if value.len() > MAX_VALUE || total > MAX_TOTAL || self.0.len() >= MAX_COUNT {
            return Err(Invalid::new(
                Code::ArgumentsTooLarge,
                format!("the environment is too large at `{name}`"),
                "pass large values in a file",
            ));
        }
        self.0.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// In alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Without the [`dangerous`] names; those are returned beside.
    #[must_use]
    pub fn strip(self) -> (Self, Vec<String>) {
        let (bad, good): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.0.into_iter().partition(|(name, _)| dangerous(name).is_some());
        (Self(good), bad.into_keys().collect())
    }

    #[must_use]
    pub fn into_map(self) -> BTreeMap<String, String> {
        self.0
    }

    fn size(&self) -> usize {
        self.0.iter().map(|(name, value)| name.len() + value.len() + 2).sum()
    }
}

impl<'de> Deserialize<'de> for Environment {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let map = BTreeMap::<String, String>::deserialize(deserializer)?;
        let mut environment = Self::new();
        for (name, value) in &map {
            environment.set(name, value).map_err(serde::de::Error::custom)?;
        }
        Ok(environment)
    }
}

fn name_refusal(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty")
    } else if name.len() > MAX_NAME {
        Some("is too long")
    } else if name.starts_with(|c: char| c.is_ascii_digit()) {
        Some("begins with a digit")
    } else if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        Some("has a character that no name has")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn entries_become_a_map() {
        let environment =
            Environment::parse(["A=1", "B=x=y", "EMPTY=", "A=2", "TEXT=é\n"]).unwrap();
        let found: Vec<_> = environment.iter().collect();
        assert_eq!(found, [("A", "2"), ("B", "x=y"), ("EMPTY", ""), ("TEXT", "é\n")]);
        assert_eq!(environment.get("B"), Some("x=y"));
    }

    #[test]
    fn bad_entries_are_refused() {
        let check = |entry: &str, code: Code| {
            assert_eq!(Environment::parse([entry]).unwrap_err().code, code, "{}", shown(entry));
        };
        check("A", Code::InvalidArgument);
        check("", Code::InvalidArgument);
        check("=x", Code::InvalidArgument);
        check("1A=x", Code::InvalidArgument);
        check("A B=x", Code::InvalidArgument);
        check("A\n=x", Code::InvalidArgument);
        check("É=x", Code::InvalidArgument);
        check("A\0=x", Code::InvalidArgument);
        check("A=x\0y", Code::InvalidArgument);
        check(&format!("{}=x", "A".repeat(256)), Code::InvalidArgument);
        check(&format!("A={}", "x".repeat(128 * 1024)), Code::ArgumentsTooLarge);
    }

    #[test]
    fn the_whole_is_bounded() {
        let value = "x".repeat(100 * 1024);
        let entries: Vec<String> = (0..11).map(|n| format!("V{n}={value}")).collect();
        let refused = Environment::parse(entries.iter().map(String::as_str)).unwrap_err();
        assert_eq!(refused.code, Code::ArgumentsTooLarge);
        let entries: Vec<String> = (0..4097).map(|n| format!("V{n}=")).collect();
        assert!(Environment::parse(entries.iter().map(String::as_str)).is_err());
    }

    #[test]
    fn dangerous_names_are_taken_out_and_told() {
        let environment =
            Environment::parse(["LD_PRELOAD=/x.so", "PATH=/bin", "BASH_ENV=/x"]).unwrap();
        let (rest, stripped) = environment.strip();
        assert_eq!(rest, Environment::parse(["PATH=/bin"]).unwrap());
        assert_eq!(stripped, ["BASH_ENV", "LD_PRELOAD"]);
        let (again, nothing) = rest.clone().strip();
        assert_eq!((again, nothing), (rest, vec![]));
    }

    #[test]
    fn stored_environments_are_checked() {
        let environment = Environment::parse(["A=1"]).unwrap();
        let json = serde_json::to_string(&environment).unwrap();
        assert_eq!(json, r#"{"A":"1"}"#);
        assert_eq!(serde_json::from_str::<Environment>(&json).unwrap(), environment);
        assert!(serde_json::from_str::<Environment>(r#"{"A B":"1"}"#).is_err());
    }

    proptest! {
        #[test]
        fn parsing_never_panics(entries: Vec<String>) {
            let _ = Environment::parse(entries.iter().map(String::as_str));
        }
    }
}
