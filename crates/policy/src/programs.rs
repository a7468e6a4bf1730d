//! The minimal-PATH profile: which programs are reachable by name.

use std::collections::BTreeSet;
use std::fmt;

use belljar_codes::Code;
use serde::{Deserialize, Serialize};

use crate::Invalid;
use crate::invalid::shown;

/// NAME_MAX of the kernel.
const MAX_NAME: usize = 255;
/// Each becomes a link in a directory of the sandbox.
const MAX_PROGRAMS: usize = 1024;

const REMEDY: &str = "list plain program names, such as `python3,cat`";

/// Plain names of programs, at least one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Programs(BTreeSet<String>);

impl Programs {
    /// Parses names with commas between them.
    ///
    /// # Errors
    /// Where there is no name, or one has a slash or a control character.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::from_names(text.split(',').map(str::trim).filter(|name| !name.is_empty()))
    }

    /// # Errors
    /// As [`Programs::parse`].
    pub fn from_names<N: Into<String>>(
        names: impl IntoIterator<Item = N>,
    ) -> Result<Self, Invalid> {
        let mut programs = BTreeSet::new();
        for name in names {
            let name = name.into();
            if let Some(reason) = refusal(&name) {
                return Err(refuse(format!("program name `{}` {reason}", shown(&name))));
            }
            programs.insert(name);
        }
        match programs.len() {
            0 => Err(refuse("the list of programs is empty".to_owned())),
            n if n > MAX_PROGRAMS => {
                Err(refuse(format!("the list has {n} programs, more than {MAX_PROGRAMS}")))
            }
            _ => Ok(Self(programs)),
        }
    }

    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// In alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }
}

impl fmt::Display for Programs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.iter().enumerate() {
            f.write_str(if index == 0 { "" } else { "," })?;
            f.write_str(name)?;
        }
        Ok(())
    }
}

impl<'de> Deserialize<'de> for Programs {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let names = Vec::<String>::deserialize(deserializer)?;
        Self::from_names(names).map_err(serde::de::Error::custom)
    }
}

fn refuse(message: String) -> Invalid {
    Invalid::new(Code::InvalidArgument, message, REMEDY)
}

fn refusal(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("is empty")
    } else if name == "." || name == ".." {
        Some("is a directory")
    } else if name.len() > MAX_NAME {
        Some("is too long")
    } else if name.contains('/') {
        Some("is a path")
    } else if name.contains(|c: char| c.is_control() || c == ',') {
        Some("contains a character that no program name has")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lists_are_sorted_sets() {
        let check = |text: &str, expected: &str| {
            assert_eq!(Programs::parse(text).unwrap().to_string(), expected);
        };
        check("python3,cat", "cat,python3");
        check(" cat , cat,", "cat");
        check("g++,[", "[,g++");
        let programs = Programs::parse("python3,cat").unwrap();
        assert!(programs.contains("cat") && !programs.contains("ca"));
        assert_eq!(programs.iter().collect::<Vec<_>>(), ["cat", "python3"]);
    }

    #[test]
    fn other_lists_are_refused() {
        let long = "x".repeat(256);
        let many = (0..1025).map(|n| format!("p{n}")).collect::<Vec<_>>().join(",");
        for text in
            ["", ",", "/bin/cat", "a/b", ".", "..", "a\0", "a\nb", "\u{1b}[0m", &long, &many]
        {
            let refused = Programs::parse(text).unwrap_err();
            assert_eq!(refused.code, Code::InvalidArgument, "{text}");
        }
    }

    #[test]
    fn stored_lists_are_checked() {
        let programs = Programs::parse("b,a").unwrap();
        let json = serde_json::to_string(&programs).unwrap();
        assert_eq!(json, r#"["a","b"]"#);
        assert_eq!(serde_json::from_str::<Programs>(&json).unwrap(), programs);
        assert!(serde_json::from_str::<Programs>(r#"["../x"]"#).is_err());
        assert!(serde_json::from_str::<Programs>("[]").is_err());
    }

    proptest! {
        #[test]
        fn what_is_shown_parses_to_the_same(text: String) {
            if let Ok(programs) = Programs::parse(&text) {
                prop_assert_eq!(Programs::parse(&programs.to_string()).unwrap(), programs);
            }
        }
    }
}
