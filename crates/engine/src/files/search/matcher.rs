//! What names and lines are matched with. Linear time, and bounded in what a pattern compiles to.

use std::path::Path;

use belljar_codes::Code;
use globset::{GlobBuilder, GlobMatcher};
use regex::bytes::{Regex, RegexBuilder};

use crate::{Error, Result};

/// Patterns are typed by people.
const LONGEST_PATTERN: usize = 4096;

/// What a pattern may compile to, and what matching may use besides.
const COMPILED_BYTES: usize = 1 << 20;
const WORKING_BYTES: usize = 2 << 20;

#[derive(Debug)]
pub(super) struct NameMatcher {
    glob: GlobMatcher,
    /// The whole path below the root is matched, not only the name.
    whole: bool,
}

impl NameMatcher {
    pub(super) fn new(glob: &str, case_sensitive: bool) -> Result<Self> {
        check_length(glob)?;
        let built = GlobBuilder::new(glob)
            .case_insensitive(!case_sensitive)
            .literal_separator(true)
            .backslash_escape(true)
            .build()
            .map_err(|error| invalid("name", glob, error))?;
        Ok(Self { glob: built.compile_matcher(), whole: glob.contains('/') })
    }

    pub(super) fn matches(&self, below_root: &Path) -> bool {
        if self.whole {
            return self.glob.is_match(below_root);
        }
        below_root.file_name().is_some_and(|name| self.glob.is_match(name))
    }
}

#[derive(Debug)]
pub(super) struct ContentMatcher {
    regex: Regex,
    quick: bool,
}

impl ContentMatcher {
    pub(super) fn new(pattern: &str, is_regex: bool, case_sensitive: bool) -> Result<Self> {
        check_length(pattern)?;
        let text = if is_regex { pattern.to_owned() } else { regex::escape(pattern) };
        let regex = RegexBuilder::new(&text)
            .case_insensitive(!case_sensitive)
            .size_limit(COMPILED_BYTES)
            .dfa_size_limit(WORKING_BYTES)
            .build()
            .map_err(|error| invalid("content", pattern, error))?;
        Ok(Self { regex, quick: !is_regex })
    }

    /// Whether matching a line takes next to no time: it is a text that is looked for. An expression may compile to
    /// thousands of states that each byte is compared with.
    pub(super) fn is_quick(&self) -> bool {
        self.quick
    }

    /// Where in the line the first match begins and ends.
    pub(super) fn find(&self, line: &[u8]) -> Option<(usize, usize)> {
        self.regex.find(line).map(|found| (found.start(), found.end()))
    }
}

fn check_length(pattern: &str) -> Result<()> {
    if pattern.is_empty() || pattern.len() > LONGEST_PATTERN {
        return Err(Error::new(
            Code::InvalidArgument,
            format!("a pattern has 1 to {LONGEST_PATTERN} bytes, not {}", pattern.len()),
        ));
    }
    Ok(())
}

fn invalid(
    what: &str,
    pattern: &str,
    source: impl std::error::Error + Send + Sync + 'static,
) -> Error {
    let shown = belljar_policy::shown(pattern);
    Error::new(Code::InvalidArgument, format!("{what} pattern `{shown}` cannot be used"))
        .with_remedy("correct the pattern, or search for literal text")
        .with_source(source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_match_names_or_paths() {
        for (glob, path, expected) in [
            ("*.rs", "a/b.rs", true),
            ("*.rs", "a/b.rc", false),
            ("a/*.rs", "a/b.rs", true),
            ("a/*.rs", "a/b/c.rs", false),
            ("a/**/*.rs", "a/b/c.rs", true),
            ("**/c.rs", "c.rs", true),
            ("{x,y}?", "z/x1", true),
            ("[ab]", "c", false),
        ] {
            let matcher = NameMatcher::new(glob, true).unwrap();
            assert_eq!(matcher.matches(Path::new(path)), expected, "{glob} {path}");
        }
        assert!(NameMatcher::new("*.RS", false).unwrap().matches(Path::new("a.rs")));
        assert!(NameMatcher::new("*.RS", true).unwrap().glob.is_match("A.RS"));
    }

    #[test]
    fn patterns_that_cost_too_much_are_refused() {
        let long = "x".repeat(LONGEST_PATTERN + 1);
        for pattern in ["(", "", r"(\w{1000}){1000}", r"((a{100}){100}){100}", long.as_str()] {
            let error = ContentMatcher::new(pattern, true, true).unwrap_err();
            assert_eq!(error.code(), Code::InvalidArgument, "{pattern:.20}");
        }
        for glob in ["[", "{a", "", long.as_str()] {
            assert_eq!(NameMatcher::new(glob, true).unwrap_err().code(), Code::InvalidArgument);
        }
        // What backtracking would never finish.
        let matcher = ContentMatcher::new("(a*)*b", true, true).unwrap();
        assert_eq!(matcher.find(&vec![b'a'; 60_000]), None);
        let literal = ContentMatcher::new("a.(b", false, false).unwrap();
        assert_eq!(literal.find(b"xA.(B"), Some((1, 5)));
        assert_eq!(literal.find(b"xAx(B"), None);
    }
}
