//! How strong the wall is, how many processes there are, and what they find in their environment.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use crate::Environment;
use crate::limits::{parse_pids, parse_timeout};

/// The weakest wall that will do. The words are those of the backends' classes, in the order of strength.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Isolation {
    Namespace,
    Kernel,
    Vm,
}

/// The document's `processes`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Processes {
    /// How many there can be at a time.
    #[serde(deserialize_with = "count", skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// How long a sandbox lives.
    #[serde(deserialize_with = "lifetime", skip_serializing_if = "Option::is_none")]
    pub lifetime_seconds: Option<u64>,
}

/// The document's `environment`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EnvironmentSection {
    /// Variables that every command finds.
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    #[serde(skip_serializing_if = "Environment::is_empty")]
    pub set: Environment,
    /// Names that a caller may set; without the field, all that are not dangerous.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allow: Option<Vec<String>>,
}

impl Isolation {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Namespace => "namespace",
            Self::Kernel => "kernel",
            Self::Vm => "vm",
        }
    }
}

fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u32>, D::Error> {
    let found = Option::<u32>::deserialize(deserializer)?;
    found.map(|count| parse_pids(&count.to_string())).transpose().map_err(Error::custom)
}

fn lifetime<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let found = Option::<u64>::deserialize(deserializer)?;
    found
        .map(|seconds| parse_timeout(&seconds.to_string()).map(|_| seconds))
        .transpose()
        .map_err(Error::custom)
}
