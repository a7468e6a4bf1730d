//! Mount arguments as people write them.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use belljar_codes::Code;
use serde::{Deserialize, Serialize};

use super::{Access, WorkspaceMode, check_target};
use crate::Invalid;
use crate::invalid::shown;

/// Where the workspace is inside every sandbox.
pub const WORKSPACE_TARGET: &str = "/workspace";

/// A host directory and its place inside the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountSpec {
    /// As written: possibly relative, not yet resolved.
    pub source: PathBuf,
    /// Checked and normalised.
    pub target: PathBuf,
    pub access: Access,
}

/// The workspace directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceSpec {
    /// As written: possibly relative, not yet resolved.
    pub source: PathBuf,
    pub mode: WorkspaceMode,
}

impl MountSpec {
    /// Parses `SRC:DST[:ro|:rw]`. The source may contain colons; the target may not.
    ///
    /// # Errors
    /// Where a part is missing or the target cannot be used.
    pub fn parse(argument: &OsStr) -> Result<Self, Invalid> {
        let (paths, access) = split_access(argument);
        let bytes = paths.as_bytes();
        // The last `:/` is where an absolute target begins; without one the last `:` gives the better message.
        let split = bytes
            .windows(2)
            .rposition(|pair| pair == b":/")
            .or_else(|| bytes.iter().rposition(|&byte| byte == b':'));
        let Some(split) = split else {
            return Err(refuse(argument, "has no target"));
        };
        let source = source(argument, &bytes[..split])?;
        let target = check_target(Path::new(OsStr::from_bytes(&bytes[split + 1..])))?;
        Ok(Self { source, target, access: access.unwrap_or(Access::ReadWrite) })
    }
}

impl WorkspaceSpec {
    /// Parses `DIR[:ro|:rw]` together with the mode asked for beside it (`bind` or `overlay`).
    ///
    /// # Errors
    /// Where the directory is empty, the mode unknown, or `:ro` meets `overlay`.
    pub fn parse(argument: &OsStr, mode: Option<&str>) -> Result<Self, Invalid> {
        let (directory, access) = split_access(argument);
        let source = source(argument, directory.as_bytes())?;
        let mode = match (mode, access) {
            (None | Some("bind"), Some(Access::ReadOnly)) => WorkspaceMode::BindReadOnly,
            (None | Some("bind"), _) => WorkspaceMode::Bind,
            (Some("overlay"), Some(Access::ReadOnly)) => {
                return Err(Invalid::new(
                    Code::ConflictingOptions,
                    "a workspace with `:ro` cannot have the mode `overlay`",
                    "leave out `:ro`: with `overlay` the host directory is never written anyway",
                ));
            }
            (Some("overlay"), _) => WorkspaceMode::Overlay,
            (Some(other), _) => {
                return Err(Invalid::new(
                    Code::InvalidArgument,
                    format!("workspace mode `{}` is not known", shown(other)),
                    "use `bind` or `overlay`",
                ));
            }
        };
        Ok(Self { source, mode })
    }
}

fn split_access(argument: &OsStr) -> (&OsStr, Option<Access>) {
    let bytes = argument.as_bytes();
    for (suffix, access) in [(":ro", Access::ReadOnly), (":rw", Access::ReadWrite)] {
        if let Some(rest) = bytes.strip_suffix(suffix.as_bytes()) {
            return (OsStr::from_bytes(rest), Some(access));
        }
    }
    (argument, None)
}

fn source(argument: &OsStr, bytes: &[u8]) -> Result<PathBuf, Invalid> {
    if bytes.is_empty() {
        return Err(refuse(argument, "has no host directory"));
    }
    if bytes.contains(&0) {
        return Err(refuse(argument, "contains a NUL byte"));
    }
    Ok(PathBuf::from(OsString::from_vec(bytes.to_vec())))
}

fn refuse(argument: &OsStr, reason: &str) -> Invalid {
    Invalid::new(
        Code::InvalidArgument,
        format!("mount `{}` {reason}", shown(&argument.to_string_lossy())),
        "write `SRC:DST`, `SRC:DST:ro`, or for a workspace `DIR` or `DIR:ro`",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn mounts() {
        let check = |text: &str, source: &str, target: &str, access: Access| {
            let mount = MountSpec::parse(OsStr::new(text)).unwrap();
            let expected = MountSpec { source: source.into(), target: target.into(), access };
            assert_eq!(mount, expected, "{text}");
        };
        check("/srv/data:/data", "/srv/data", "/data", Access::ReadWrite);
        check("/srv/data:/data:ro", "/srv/data", "/data", Access::ReadOnly);
        check("/srv/data:/data:rw", "/srv/data", "/data", Access::ReadWrite);
        check("data:/data//x/./", "data", "/data/x", Access::ReadWrite);
        check("/odd:name:/data", "/odd:name", "/data", Access::ReadWrite);
        check(".:/here", ".", "/here", Access::ReadWrite);
    }

    #[test]
    fn bad_mounts() {
        let check = |text: &str, code: Code| {
            assert_eq!(MountSpec::parse(OsStr::new(text)).unwrap_err().code, code, "{text:?}");
        };
        check("", Code::InvalidArgument);
        check("/data", Code::InvalidArgument);
        check(":/data", Code::InvalidArgument);
        check("/a\0b:/data", Code::InvalidArgument);
        check("/data:", Code::MountTargetInvalid);
        check("/data:relative", Code::MountTargetInvalid);
        check("/data:ro", Code::InvalidArgument);
        check("/data:/data:rx", Code::MountTargetInvalid);
        check("/data:/../etc", Code::MountTargetInvalid);
    }

    #[test]
    fn bytes_that_are_no_text_survive() {
        let mount = MountSpec::parse(OsStr::from_bytes(b"/srv/\xff:/d\xfe:ro")).unwrap();
        assert_eq!(mount.source.as_os_str().as_bytes(), b"/srv/\xff");
        assert_eq!(mount.target.as_os_str().as_bytes(), b"/d\xfe");
    }

    #[test]
    fn workspaces() {
        let check =
            |text: &str, mode: Option<&str>, expected: Result<(&str, WorkspaceMode), Code>| {
                let found = WorkspaceSpec::parse(OsStr::new(text), mode).map_err(|e| e.code);
                let expected =
                    expected.map(|(source, mode)| WorkspaceSpec { source: source.into(), mode });
                assert_eq!(found, expected, "{text} {mode:?}");
            };
        check(".", None, Ok((".", WorkspaceMode::Bind)));
        check("dir:ro", None, Ok(("dir", WorkspaceMode::BindReadOnly)));
        check("dir:ro", Some("bind"), Ok(("dir", WorkspaceMode::BindReadOnly)));
        check("dir:ro:rw", None, Ok(("dir:ro", WorkspaceMode::Bind)));
        check("dir", Some("overlay"), Ok(("dir", WorkspaceMode::Overlay)));
        check("dir:ro", Some("overlay"), Err(Code::ConflictingOptions));
        check("dir", Some("copy"), Err(Code::InvalidArgument));
        check("", None, Err(Code::InvalidArgument));
        check(":ro", None, Err(Code::InvalidArgument));
        check("a\0", None, Err(Code::InvalidArgument));
    }

    proptest! {
        #[test]
        fn parsing_never_panics(bytes: Vec<u8>) {
            let _ = MountSpec::parse(OsStr::from_bytes(&bytes));
            let _ = WorkspaceSpec::parse(OsStr::from_bytes(&bytes), None);
        }

        #[test]
        fn absolute_pairs_parse(source in "/[a-z:/.]{0,20}", target in "/[a-z]{4,9}/[a-z]{1,9}") {
            if let Ok(mount) = MountSpec::parse(OsStr::new(&format!("{source}:{target}:ro"))) {
                prop_assert_eq!(mount.source, PathBuf::from(source));
                prop_assert_eq!(mount.target, PathBuf::from(target));
                prop_assert_eq!(mount.access, Access::ReadOnly);
            }
        }
    }
}
