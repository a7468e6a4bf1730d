//! One question, one answer.

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

use super::Context;
use super::asking::Asking;
use super::policy::{Compiled, Policy};
use crate::document::{Action, Rule};

/// The answer, with what an audit record needs.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Decision {
    pub verdict: Action,
    /// The name of the rule that decided; `None` for the default and for errors.
    pub rule: Option<String>,
    /// The rule's own words for people; possibly empty.
    pub message: String,
    pub reason: Reason,
    /// Of the policy that was asked.
    #[serde(serialize_with = "as_str")]
    pub digest: Arc<str>,
}

fn as_str<S: serde::Serializer>(text: &Arc<str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(text)
}

/// Why the answer is what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind", content = "detail")]
pub enum Reason {
    /// A rule matched.
    Rule,
    /// A document further up denies it, whatever those below say; its name.
    DeniedAbove(String),
    /// No rule matched.
    Default,
    /// A rule could not be evaluated.
    Error(String),
}

impl Decision {
    #[must_use]
    pub fn permits(&self) -> bool {
        self.verdict.permits()
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule => f.write_str("the rule matched"),
            Self::DeniedAbove(name) => write!(f, "the rule of `{name}`, further up, denies it"),
            Self::Default => f.write_str("no rule matched, so the default counts"),
            Self::Error(error) => write!(f, "a rule could not be evaluated: {error}"),
        }
    }
}

/// What the rules of the documents up to one of them say.
#[derive(Clone, Debug)]
pub(crate) enum Outcome<'p> {
    Matched(&'p Compiled),
    Failed(&'p Compiled, String),
    Nothing,
}

impl Policy {
    /// Judges `context`. Never fails: what cannot be evaluated is denied.
    #[must_use]
    pub fn decide(&self, context: &Context) -> Decision {
        let outcomes = self.outcomes(context, None);
        self.conclude(&outcomes)
    }

    /// The answer from the outcome of each prefix of the documents.
    pub(crate) fn conclude(&self, outcomes: &[Outcome<'_>]) -> Decision {
        let (level, outcome) = decisive(outcomes);
        match outcome {
            Outcome::Matched(found) if level + 1 < outcomes.len() => {
                let reason = Reason::DeniedAbove(self.layers[found.level].clone());
                self.decision(Action::Deny, Some(&found.rule), reason)
            }
            Outcome::Matched(found) => self.decision(found.action, Some(&found.rule), Reason::Rule),
            Outcome::Failed(_, error) => {
                self.decision(Action::Deny, None, Reason::Error(error.clone()))
            }
            Outcome::Nothing => self.decision(self.default, None, Reason::Default),
        }
    }

    /// The rule that the answer comes from, if any.
    pub(crate) fn decider<'p>(&self, outcomes: &[Outcome<'p>]) -> Option<&'p Compiled> {
        match decisive(outcomes).1 {
            Outcome::Matched(rule) | Outcome::Failed(rule, _) => Some(rule),
            Outcome::Nothing => None,
        }
    }

    fn decision(&self, verdict: Action, rule: Option<&Rule>, reason: Reason) -> Decision {
        Decision {
            verdict,
            rule: rule.map(|rule| rule.name.clone()),
            message: rule.map(|rule| rule.message.clone()).unwrap_or_default(),
            reason,
            digest: Arc::clone(&self.digest),
        }
    }

    /// Asks the rules in order, without the one at `skipped`. One outcome for each prefix of the documents.
    pub(crate) fn outcomes(
        &self,
        context: &Context,
        skipped: Option<&Compiled>,
    ) -> Vec<Outcome<'_>> {
        let mut asking = Asking::new(context, &self.fields);
        let mut outcomes = vec![Outcome::Nothing; self.layers.len()];
        let mut undecided = u64::MAX >> (64 - self.layers.len());
        for rule in &self.rules {
            let concerned = undecided & rule.counts_in;
            if concerned == 0 || skipped.is_some_and(|skipped| std::ptr::eq(skipped, rule)) {
                continue;
            }
            match asking.ask(rule) {
                Ok(false) => {}
                Ok(true) => {
                    self.record(&mut outcomes, concerned, rule);
                    if self.strategy.first_match_wins() {
                        undecided &= !concerned;
                    }
                }
                Err(error) => {
                    let error = format!("rule `{}`: {error}", rule.rule.name);
                    for level in bits(concerned) {
                        outcomes[level] = Outcome::Failed(rule, error.clone());
                    }
                    undecided &= !concerned;
                }
            }
            if undecided == 0 {
                break;
            }
        }
        outcomes
    }

    fn record<'p>(&self, outcomes: &mut [Outcome<'p>], levels: u64, rule: &'p Compiled) {
        for level in bits(levels) {
            let beats = match &outcomes[level] {
                Outcome::Matched(old) => self.strategy.prefers(rule, old),
                Outcome::Failed(..) => false,
                Outcome::Nothing => true,
            };
            if beats {
                outcomes[level] = Outcome::Matched(rule);
            }
        }
    }
}

/// The outcome that counts: the first denial or failure of a prefix, else that of all documents.
fn decisive<'o, 'p>(outcomes: &'o [Outcome<'p>]) -> (usize, &'o Outcome<'p>) {
    let last = outcomes.len() - 1;
    let stays = |outcome: &Outcome<'_>| match outcome {
        Outcome::Matched(found) => found.action == Action::Deny,
        Outcome::Failed(..) => true,
        Outcome::Nothing => false,
    };
    let level = outcomes[..last].iter().position(stays).unwrap_or(last);
    (level, &outcomes[level])
}

fn bits(mut mask: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lowest = (mask != 0).then(|| mask.trailing_zeros() as usize)?;
        mask &= mask - 1;
        Some(lowest)
    })
}
