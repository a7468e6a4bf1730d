//! The policy document: one file that says everything a sandbox may do.
//!
//! Text becomes a [`Document`] or a [`Refusal`] with line and column; documents become a [`Policy`] that answers
//! questions. Existing documents of the Agent Governance Toolkit load unchanged and are answered alike; the sections
//! beyond theirs are optional. Nothing here reads files: `extends` and folders work on documents already loaded.

mod cases;
mod chain;
mod defaults;
mod diff;
mod evaluate;
mod explain;
mod extends;
mod flow;
mod narrow;
mod normal;
mod rule;
mod schema;
mod sections;
mod syntax;
mod value;
mod write;

pub use cases::{Case, CaseResult, Cases, Expected, FlowCase};
pub use chain::{Chain, Inheritance, Layer, MAX_LEVELS};
pub use defaults::{Defaults, NetworkDefault};
pub use diff::{Change, Effect, Subject, diff};
pub use evaluate::{Context, Decision, MAX_PATTERN_BYTES, Policy, Reason, Strategy};
pub use explain::{Considered, Explanation};
pub use extends::{MAX_EXTENDS, extended};
pub use flow::{Flow, FlowDecision, FlowRules};
pub use rule::{Action, Condition, Operator, Rule};
pub use schema::schema;
pub use sections::*;
pub use syntax::{Format, MAX_BYTES, MAX_DEPTH, MAX_NODES, Refusal, read};
pub use value::Value;
pub use write::to_yaml;

pub(crate) use evaluate::{Looks, Owner, Pattern};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{HostPattern, Programs};
use syntax::checked_list;

/// More rules are no document that people review.
pub const MAX_RULES: usize = 20_000;

/// One policy document.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Document {
    pub version: String,
    pub name: String,
    pub description: String,
    /// Documents that this one builds on, by file, the most general first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extends: Vec<String>,
    /// Whether the documents of the folders above count too.
    pub inherit: bool,
    /// A glob; the document counts only for actions on paths that match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scope: Option<String>,
    /// Which rule counts where several match.
    pub strategy: Strategy,
    pub defaults: Defaults,
    #[serde(deserialize_with = "checked_list")]
    pub rules: Vec<Rule>,
    /// Hosts that a sandbox may reach, such as `pypi.org` or `*.github.com`.
    #[schemars(with = "Vec<String>")]
    pub network_allowlist: Vec<HostPattern>,
    /// Names of the tools that exist inside.
    pub tool_allowlist: Vec<String>,
    /// Tools that the host runs itself; others are declared by clients while they are connected.
    #[serde(deserialize_with = "checked_list", skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    #[serde(skip_serializing_if = "SandboxMounts::is_empty")]
    pub sandbox_mounts: SandboxMounts,
    /// The weakest wall that will do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub isolation: Option<Isolation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub filesystem: Option<Filesystem>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<NetworkSection>,
    #[serde(deserialize_with = "checked_list", skip_serializing_if = "Vec::is_empty")]
    pub credentials: Vec<Credential>,
    /// The programs that are reachable by name; without the field, all.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>")]
    pub programs: Option<Programs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processes: Option<Processes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<EnvironmentSection>,
}

impl Default for Document {
    fn default() -> Self {
        Self {
            version: "1.0".to_owned(),
            name: "unnamed".to_owned(),
            description: String::new(),
            extends: Vec::new(),
            inherit: true,
            scope: None,
            strategy: Strategy::default(),
            defaults: Defaults::default(),
            rules: Vec::new(),
            network_allowlist: Vec::new(),
            tool_allowlist: Vec::new(),
            tools: Vec::new(),
            sandbox_mounts: SandboxMounts::default(),
            isolation: None,
            filesystem: None,
            network: None,
            credentials: Vec::new(),
            programs: None,
            processes: None,
            environment: None,
        }
    }
}

impl Document {
    /// One that is meant by itself.
    ///
    /// # Errors
    /// Names line, column and reason; an unknown field together with the nearest known one.
    pub fn parse(text: &str, format: Format) -> Result<Self, Refusal> {
        let document = Self::parse_one_of_many(text, format)?;
        evaluate::check_together(std::iter::once(&document))?;
        Ok(document)
    }

    /// The same without what patterns take, which [`Chain::new`] judges once for all documents that build on each other.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn parse_one_of_many(text: &str, format: Format) -> Result<Self, Refusal> {
        let document: Self = read(text, format)?;
        if document.rules.len() > MAX_RULES {
            return Err(Refusal::whole(
                format!("there are {} rules, more than {MAX_RULES}", document.rules.len()),
                "join rules with `in` and `matches`",
            ));
        }
        Ok(document)
    }

    /// Every directory of the host that the document shows to a sandbox.
    #[must_use]
    pub fn mounts(&self) -> Vec<Mount> {
        let more = self.filesystem.iter().flat_map(|section| section.mounts.iter().cloned());
        self.sandbox_mounts.mounts().into_iter().chain(more).collect()
    }
}

#[cfg(test)]
mod tests;
