//! Directories of the host that a sandbox sees, and what it may write.

use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::document::Looks;
use crate::document::syntax::{Check, checked_list};
use crate::mounts::check_target;
use crate::{Access, Invalid};

/// PATH_MAX of the kernel.
const MAX_PATH: usize = 4096;

/// The document's `sandbox_mounts`: where existing documents name two directories.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SandboxMounts {
    /// Read-only at `/input`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_dir: Option<String>,
    /// Writable at `/output`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_dir: Option<String>,
}

/// The document's `filesystem`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Filesystem {
    /// Whether the root can be written (in a layer of the sandbox).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub writable_root: Option<bool>,
    /// Paths inside the sandbox that stay as they are.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub read_only: Vec<InnerPath>,
    #[serde(deserialize_with = "checked_list", skip_serializing_if = "Vec::is_empty")]
    pub mounts: Vec<Mount>,
}

/// A directory of the host and its place inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// As written: possibly relative to the document, not resolved here.
    pub source: String,
    pub target: InnerPath,
    #[serde(default)]
    pub access: MountAccess,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum MountAccess {
    #[default]
    #[serde(rename = "ro")]
    ReadOnly,
    #[serde(rename = "rw")]
    ReadWrite,
}

/// An absolute path inside the sandbox, in its shortest form.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct InnerPath(String);

impl SandboxMounts {
    /// The same in the words of [`Filesystem`].
    #[must_use]
    pub fn mounts(&self) -> Vec<Mount> {
        let mount = |source: &Option<String>, target: &str, access| {
            source.clone().map(|source| Mount {
                source,
                target: InnerPath(target.to_owned()),
                access,
            })
        };
        mount(&self.input_dir, "/input", MountAccess::ReadOnly)
            .into_iter()
            .chain(mount(&self.output_dir, "/output", MountAccess::ReadWrite))
            .collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Check for Mount {
    fn check(&self, _: &mut Looks) -> Result<(), Invalid> {
        check_target(Path::new(self.target.as_str())).map(|_| ())
    }
}

impl MountAccess {
    #[must_use]
    pub const fn access(self) -> Access {
        match self {
            Self::ReadOnly => Access::ReadOnly,
            Self::ReadWrite => Access::ReadWrite,
        }
    }
}

impl InnerPath {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<'de> Deserialize<'de> for InnerPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let plain = |part: &str| !part.is_empty() && part != "." && part != "..";
        let shortest =
            text == "/" || text.strip_prefix('/').is_some_and(|rest| rest.split('/').all(plain));
        if !shortest || text.contains(char::is_control) || text.len() > MAX_PATH {
            let shown = crate::shown(&text);
            return Err(D::Error::custom(format!("`{shown}` is no plain absolute path")));
        }
        Ok(Self(text))
    }
}
