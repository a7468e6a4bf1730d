//! Paths below mounts that a sandbox does not get to see, as people write them.
//!
//! Only text: whether something is there, and below which mount, is found out where the mounts are opened.

use std::path::{Path, PathBuf};

use belljar_codes::Code;

use super::target::normal;
use crate::Invalid;
use crate::invalid::shown;

/// More than this is a mistake; each costs system calls at every start.
pub const MAX_MASKS: usize = 64;

/// `mask` in its normal form: absolute, no `.`, no doubled or trailing slash.
///
/// # Errors
/// Where it is not absolute, or contains `..` or NUL.
pub fn check_mask(mask: &Path) -> Result<PathBuf, Invalid> {
    normal(mask).map_err(|reason| {
        Invalid::new(
            Code::MountTargetInvalid,
            format!("mask `{}` {reason}", shown(&mask.to_string_lossy())),
            "use an absolute path inside the sandbox such as `/data/secrets`",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        let check = |text: &str, expected: Option<&str>| {
            let found = check_mask(Path::new(text)).map_err(|invalid| invalid.code);
            let expected = expected.map(PathBuf::from).ok_or(Code::MountTargetInvalid);
            assert_eq!(found, expected, "{text:?}");
        };
        check("/data/.env", Some("/data/.env"));
        check("/data//a/./b/", Some("/data/a/b"));
        check("/data/a:b", Some("/data/a:b"));
        check("", None);
        check("data/.env", None);
        check("/data/../etc", None);
        check("/data/a\0b", None);
        check(&format!("/{}", "a".repeat(4095)), None);
    }
}
