//! Why a question is answered as it is.

use std::fmt;

use serde::Serialize;

use super::evaluate::Compiled;
use super::{Action, Context, Decision, Policy};

/// An answer with its grounds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    pub decision: Decision,
    /// The rule that decided, and what it saw.
    pub decided_by: Option<Considered>,
    /// What would decide if that rule were not there.
    pub next: Option<Considered>,
    /// What the answer would be then.
    pub next_verdict: Action,
    /// Fields that rules ask for and the context lacks; such rules never match.
    pub missing_fields: Vec<String>,
}

/// One rule in the light of one context.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Considered {
    pub rule: String,
    pub document: String,
    pub action: Action,
    pub priority: i64,
    /// What the rule asks.
    pub condition: String,
    /// What the context has there.
    pub found: String,
}

/// Long values are cut: explanations are read by people.
const SHOWN: usize = 200;

impl Policy {
    /// Judges `context` and says why.
    #[must_use]
    pub fn explain(&self, context: &Context) -> Explanation {
        let outcomes = self.outcomes(context, None);
        let decision = self.conclude(&outcomes);
        let decider = self.decider(&outcomes);
        let others = self.outcomes(context, decider);
        Explanation {
            decided_by: decider.map(|rule| self.considered(rule, context)),
            next: self.decider(&others).map(|rule| self.considered(rule, context)),
            next_verdict: self.conclude(&others).verdict,
            missing_fields: self.missing(context),
            decision,
        }
    }

    fn considered(&self, compiled: &Compiled, context: &Context) -> Considered {
        let rule = &compiled.rule;
        let found = context.get(&rule.condition.field).map(ToString::to_string).unwrap_or_default();
        Considered {
            rule: rule.name.clone(),
            document: self.layer_name(compiled.level).to_owned(),
            action: rule.action,
            priority: rule.priority,
            condition: cut(&rule.condition.to_string()),
            found: cut(&found),
        }
    }
}

fn cut(text: &str) -> String {
    let mut characters = text.chars();
    let mut out: String = characters.by_ref().take(SHOWN).collect();
    if characters.next().is_some() {
        out.push('…');
    }
    out
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.decision.verdict, self.decision.reason)?;
        if let Some(rule) = &self.decided_by {
            writeln!(f, "  rule {rule}")?;
        }
        if !self.decision.message.is_empty() {
            writeln!(f, "  message: {}", self.decision.message)?;
        }
        match &self.next {
            Some(rule) => writeln!(f, "  next would be {rule}")?,
            None if self.decided_by.is_some() => {
                writeln!(f, "  next would be the default: {}", self.next_verdict)?;
            }
            None => {}
        }
        if !self.missing_fields.is_empty() {
            writeln!(f, "  not in the context: {}", self.missing_fields.join(", "))?;
        }
        Ok(())
    }
}

impl fmt::Display for Considered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "`{}` of `{}` ({}, priority {}): {}; found {}",
            self.rule, self.document, self.action, self.priority, self.condition, self.found
        )
    }
}
