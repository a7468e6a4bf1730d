//! Rules: a condition on one field of the context, and what follows from it.

use std::fmt;

use belljar_codes::Code;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::evaluate::{Looks, Pattern, as_text};
use super::syntax::Check;
use super::value::Value;
use crate::{Invalid, shown};

const MAX_NAME: usize = 256;

/// What a rule, or the default, says.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Action {
    #[default]
    Allow,
    /// Refused; no folder below can lift it.
    Deny,
    /// Permitted and recorded.
    Audit,
    /// Refused; a folder below can replace the rule by name.
    Block,
}

/// How a field is compared with a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Operator {
    Eq,
    Ne,
    Gt,
    Lt,
    Gte,
    Lte,
    /// The field is one of the values of a list, a name of a map, or a part of a text.
    In,
    NotIn,
    /// A regular expression occurs in the field.
    Matches,
    /// The value is in the field's list, a name in its map, or a part of its text.
    Contains,
}

/// When a rule applies. A field that the context does not have never matches, whatever the operator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Condition {
    /// A field of the context, such as `tool`, `command` or `arguments.path`.
    pub field: String,
    pub operator: Operator,
    pub value: Value,
}

/// One rule.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    pub name: String,
    pub condition: Condition,
    pub action: Action,
    /// Rules of higher priority are asked first; equal ones in the order of writing.
    #[serde(default)]
    pub priority: i64,
    /// For people: why, and what to do instead.
    #[serde(default)]
    pub message: String,
    /// Replaces the rule of that name of a folder above, unless that one is a `deny`.
    #[serde(default, rename = "override")]
    pub overrides: bool,
}

impl Check for Rule {
    fn check(&self, looks: &mut Looks) -> Result<(), Invalid> {
        if self.name.trim().is_empty() || self.name.len() > MAX_NAME {
            return Err(Invalid::new(
                Code::InvalidPolicy,
                format!("the rule name `{}` is empty or too long", shown(&self.name)),
                "give the rule a short name: decisions show it",
            ));
        }
        if self.condition.operator == Operator::Matches {
            // The rest is judged with all others of the document.
            Pattern::look_at(&as_text(&self.condition.value), looks)?;
        }
        Ok(())
    }
}

impl Action {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Deny => "deny",
            Self::Audit => "audit",
            Self::Block => "block",
        }
    }

    /// Whether what was asked may happen.
    #[must_use]
    pub const fn permits(self) -> bool {
        matches!(self, Self::Allow | Self::Audit)
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Operator {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Eq => "eq",
            Self::Ne => "ne",
            Self::Gt => "gt",
            Self::Lt => "lt",
            Self::Gte => "gte",
            Self::Lte => "lte",
            Self::In => "in",
            Self::NotIn => "not_in",
            Self::Matches => "matches",
            Self::Contains => "contains",
        }
    }

    /// As a sentence goes on after the field's name.
    #[must_use]
    pub const fn in_words(self) -> &'static str {
        match self {
            Self::Eq => "equals",
            Self::Ne => "differs from",
            Self::Gt => "is more than",
            Self::Lt => "is less than",
            Self::Gte => "is at least",
            Self::Lte => "is at most",
            Self::In => "is one of",
            Self::NotIn => "is none of",
            Self::Matches => "matches",
            Self::Contains => "contains",
        }
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.field, self.operator.in_words(), self.value)
    }
}
