//! One side of a copy, as it is typed.

use std::ffi::OsStr;
use std::path::PathBuf;

use crate::failure::Failure;
use crate::request::text;

/// Where a copy comes from or goes to.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// A path of this machine.
    Here(PathBuf),
    /// Standard input or output.
    Standard,
    /// Sandbox and path inside.
    Sandbox(String, String),
}

impl Side {
    /// `-`, `SANDBOX:PATH`, or a path. A colon after a slash belongs to the path.
    pub(super) fn parse(word: &OsStr) -> Result<Self, Failure> {
        if word == "-" {
            return Ok(Self::Standard);
        }
        let bytes = word.as_encoded_bytes();
        let colon = bytes.iter().position(|&byte| byte == b':');
        let slash = bytes.iter().position(|&byte| byte == b'/').unwrap_or(bytes.len());
        match colon {
            Some(colon) if colon > 0 && colon < slash => {
                let word = text(word)?;
                let (sandbox, path) = word.split_at(colon);
                let path = path.trim_start_matches(':');
                let path = if path.is_empty() { "." } else { path };
                Ok(Self::Sandbox(sandbox.to_owned(), path.to_owned()))
            }
            _ => Ok(Self::Here(PathBuf::from(word))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sides() {
        let check = |word: &str, expected: Side| {
            assert_eq!(Side::parse(OsStr::new(word)).unwrap(), expected, "{word}");
        };
        let sandbox = |name: &str, path: &str| Side::Sandbox(name.into(), path.into());
        check("-", Side::Standard);
        check("web:/tmp/x", sandbox("web", "/tmp/x"));
        check("web:a:b", sandbox("web", "a:b"));
        check("web:", sandbox("web", "."));
        check("/tmp/a:b", Side::Here("/tmp/a:b".into()));
        check("./a:b", Side::Here("./a:b".into()));
        check(":x", Side::Here(":x".into()));
        check("file.txt", Side::Here("file.txt".into()));
    }
}
