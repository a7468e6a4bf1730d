//! What counts where no rule does, and the limits of a sandbox.

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de::Error};

use super::Action;
use crate::limits::{parse_cpus, parse_memory, parse_timeout};
use crate::{Asked, Limits};

/// Whether hosts that nothing names are reachable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum NetworkDefault {
    #[default]
    Deny,
    Allow,
}

/// The document's `defaults`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Defaults {
    /// What is answered when no rule matches.
    pub action: Action,
    /// CPUs, such as `0.5` or `2`.
    #[serde(deserialize_with = "cpus", skip_serializing_if = "Option::is_none")]
    pub max_cpu: Option<f64>,
    /// Memory in MiB.
    #[serde(deserialize_with = "memory", skip_serializing_if = "Option::is_none")]
    pub max_memory_mb: Option<u64>,
    /// How long one command may run.
    #[serde(deserialize_with = "timeout", skip_serializing_if = "Option::is_none")]
    pub timeout_seconds: Option<u64>,
    /// Whether hosts that nothing names are reachable.
    pub network_default: NetworkDefault,
    /// Kept for the programs that read it; nothing here enforces it.
    pub max_tokens: i64,
    /// Kept for the programs that read it; nothing here enforces it.
    pub max_tool_calls: i64,
    /// Kept for the programs that read it; nothing here enforces it.
    pub confidence_threshold: f64,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            action: Action::Allow,
            max_cpu: None,
            max_memory_mb: None,
            timeout_seconds: None,
            network_default: NetworkDefault::Deny,
            max_tokens: 4096,
            max_tool_calls: 10,
            confidence_threshold: 0.8,
        }
    }
}

impl Defaults {
    /// `base` with the limits that the document names.
    #[must_use]
    pub fn limits(&self, mut base: Limits) -> Limits {
        if let Some(millis) = self.max_cpu.and_then(|cpus| parse_cpus(&cpus.to_string()).ok()) {
            base.cpu_millis = Asked::by_caller(millis);
        }
        if let Some(bytes) = self.max_memory_mb.and_then(|mib| parse_memory(&mebibytes(mib)).ok()) {
            base.memory_bytes = Asked::by_caller(bytes);
        }
        base
    }
}

fn mebibytes(mib: u64) -> String {
    format!("{mib}m")
}

// Limits are judged where they are written, so that a refusal has their place.

fn cpus<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<f64>, D::Error> {
    let found = Option::<f64>::deserialize(deserializer)?;
    found.map(|cpus| parse_cpus(&cpus.to_string()).map(|_| cpus)).transpose().map_err(Error::custom)
}

fn memory<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let found = Option::<u64>::deserialize(deserializer)?;
    found.map(|mib| parse_memory(&mebibytes(mib)).map(|_| mib)).transpose().map_err(Error::custom)
}

fn timeout<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let found = Option::<u64>::deserialize(deserializer)?;
    found
        .map(|seconds| parse_timeout(&seconds.to_string()).map(|_| seconds))
        .transpose()
        .map_err(Error::custom)
}
