//! What a sandbox starts from.

mod detect;

pub use detect::{CommandText, MANIFESTS, detect};

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use belljar_codes::Code;
use serde::{Deserialize, Serialize};

use crate::Invalid;
use crate::invalid::shown;

/// The templates there are, with a line for people.
pub const TEMPLATES: &[(&str, &str)] = &[
    ("auto", "chosen from the command, then from the workspace's manifests"),
    ("host", "this machine's programs and libraries, read-only"),
    ("rootfs:DIR", "an unpacked root file system, read-only below"),
    ("image:NAME", "an image of a container engine; also NAME alone where it has a tag or a path"),
];

/// A template as the caller named it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TemplateSpec {
    #[default]
    Auto,
    Host,
    /// As written: possibly relative, not yet resolved.
    Rootfs(PathBuf),
    /// The reference of an image in a container engine's store.
    Image(String),
}

/// The kind of project or command a sandbox is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Family {
    Python,
    Node,
    Go,
    Rust,
    Base,
}

impl TemplateSpec {
    /// # Errors
    /// Where there is no such template; the remedy lists those there are.
    pub fn parse(argument: &OsStr) -> Result<Self, Invalid> {
        let bytes = argument.as_bytes();
        if let Some(directory) = bytes.strip_prefix(b"rootfs:") {
            if directory.is_empty() || directory.contains(&0) {
                return Err(Invalid::new(
                    Code::InvalidArgument,
                    "template `rootfs:` names no directory",
                    "write `rootfs:DIR` with the directory of an unpacked root file system",
                ));
            }
            return Ok(Self::Rootfs(PathBuf::from(OsStr::from_bytes(directory))));
        }
        let text = argument.to_str().unwrap_or_default();
        if let Some(reference) = text.strip_prefix("image:") {
            return match is_reference(reference) {
                true => Ok(Self::Image(reference.to_owned())),
                false => Err(Invalid::new(
                    Code::InvalidArgument,
                    format!("`{}` names no image", shown(reference)),
                    "write `image:NAME`, `image:NAME:TAG` or `image:NAME@sha256:DIGEST`",
                )),
            };
        }
        match bytes {
            b"auto" => Ok(Self::Auto),
            b"host" => Ok(Self::Host),
            // A word alone may be a slip of the pen; with a path, a tag or a digest it can only be an image.
            _ if text.contains(['/', ':', '@']) && is_reference(text) => {
                Ok(Self::Image(text.to_owned()))
            }
            _ => Err(Invalid::new(
                Code::TemplateNotFound,
                format!("there is no template `{}`", shown(&argument.to_string_lossy())),
                "use `auto`, `host`, `rootfs:DIR` or `image:NAME`; `belljar templates` lists them",
            )),
        }
    }
}

/// Whether `text` can be the name of an image, with or without a registry, a path, a tag or a digest.
fn is_reference(text: &str) -> bool {
    const LONGEST: usize = 512;
    let parts_begin_well = text
        .split(['/', ':', '@'])
        .all(|part| part.starts_with(|first: char| first.is_ascii_alphanumeric()));
    parts_begin_well
        && text.len() <= LONGEST
        && !text.contains("..")
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-/:@".contains(c))
}

impl fmt::Display for TemplateSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad("auto"),
            Self::Host => f.pad("host"),
            Self::Rootfs(directory) => write!(f, "rootfs:{}", directory.display()),
            Self::Image(reference) => write!(f, "image:{reference}"),
        }
    }
}

impl Family {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Go => "go",
            Self::Rust => "rust",
            Self::Base => "base",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn templates() {
        let check = |text: &[u8], expected: Result<TemplateSpec, Code>| {
            let found = TemplateSpec::parse(OsStr::from_bytes(text)).map_err(|e| e.code);
            assert_eq!(found, expected);
        };
        check(b"auto", Ok(TemplateSpec::Auto));
        check(b"host", Ok(TemplateSpec::Host));
        check(b"rootfs:/srv/debian", Ok(TemplateSpec::Rootfs("/srv/debian".into())));
        check(b"rootfs:a:b", Ok(TemplateSpec::Rootfs("a:b".into())));
        check(b"rootfs:\xff", Ok(TemplateSpec::Rootfs(OsStr::from_bytes(b"\xff").into())));
        check(b"rootfs:", Err(Code::InvalidArgument));
        check(b"rootfs:a\0b", Err(Code::InvalidArgument));
        let image = |reference: &str| Ok(TemplateSpec::Image(reference.to_owned()));
        check(b"image:python", image("python"));
        check(b"python:3.12-slim", image("python:3.12-slim"));
        check(b"localhost:5000/a/b@sha256:0f", image("localhost:5000/a/b@sha256:0f"));
        check(b"image:", Err(Code::InvalidArgument));
        check(b"image:-v", Err(Code::InvalidArgument));
        check(b"image:a b", Err(Code::InvalidArgument));
        check(b"a/../b", Err(Code::TemplateNotFound));
        check(b"/srv/debian", Err(Code::TemplateNotFound));
        check(b"./debian", Err(Code::TemplateNotFound));
        check(b"", Err(Code::TemplateNotFound));
        check(b"python", Err(Code::TemplateNotFound));
        check(b"Host", Err(Code::TemplateNotFound));
        check(b"\xff\n", Err(Code::TemplateNotFound));
    }

    #[test]
    fn an_unknown_template_is_shown_inert() {
        let refused = TemplateSpec::parse(OsStr::new("x\u{1b}[2J")).unwrap_err();
        assert_eq!(refused.message, "there is no template `x\\u{1b}[2J`");
    }
}
