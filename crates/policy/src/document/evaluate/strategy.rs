//! Which rule counts where several match.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::policy::Compiled;
use crate::document::Action;

/// How conflicts between rules are settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Any `deny` wins over the rest.
    DenyOverrides,
    /// Any `allow` wins over the rest.
    AllowOverrides,
    /// The first by priority wins.
    #[default]
    PriorityFirstMatch,
    /// The document nearest to the path wins, then priority.
    MostSpecificWins,
}

impl Strategy {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::DenyOverrides => "deny_overrides",
            Self::AllowOverrides => "allow_overrides",
            Self::PriorityFirstMatch => "priority_first_match",
            Self::MostSpecificWins => "most_specific_wins",
        }
    }

    /// Whether the first match settles it, so that later rules need not be asked.
    pub(super) const fn first_match_wins(self) -> bool {
        matches!(self, Self::PriorityFirstMatch)
    }

    /// Whether `new`, which comes later by priority, beats `old`.
    pub(super) fn prefers(self, new: &Compiled, old: &Compiled) -> bool {
        let over = |action| new.action == action && old.action != action;
        match self {
            Self::DenyOverrides => over(Action::Deny),
            Self::AllowOverrides => over(Action::Allow),
            Self::PriorityFirstMatch => false,
            Self::MostSpecificWins => new.level > old.level,
        }
    }
}
