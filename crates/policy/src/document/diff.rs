//! What changes between two documents, in words: what becomes possible and what no longer is.

mod grants;
mod hosts;
mod limits;
mod rules;

use std::fmt;

use serde::Serialize;

use super::Document;

/// What a change is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Subject {
    Host,
    Tool,
    Path,
    Limit,
    Isolation,
    Program,
    Credential,
    Environment,
    Rule,
    Default,
    Document,
}

/// Whether more or less is possible afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    Wider,
    Narrower,
    /// Neither, or it depends.
    Other,
}

/// One change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Change {
    pub subject: Subject,
    pub effect: Effect,
    /// A sentence for people.
    pub text: String,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = match self.effect {
            Effect::Wider => '+',
            Effect::Narrower => '-',
            Effect::Other => '~',
        };
        write!(f, "{sign} {}", self.text)
    }
}

/// The changes from `old` to `new`, by subject. Empty if both say the same.
#[must_use]
pub fn diff(old: &Document, new: &Document) -> Vec<Change> {
    let (old, new) = (&old.normalised(), &new.normalised());
    if old == new {
        return Vec::new();
    }
    let mut changes = Changes::default();
    hosts::compare(old, new, &mut changes);
    grants::compare(old, new, &mut changes);
    limits::compare(old, new, &mut changes);
    rules::compare(old, new, &mut changes);
    changes.sort();
    changes.0
}

#[derive(Default)]
struct Changes(Vec<Change>);

impl Changes {
    fn add(&mut self, subject: Subject, effect: Effect, text: String) {
        self.0.push(Change { subject, effect, text });
    }

    /// A change where one of the two is wider.
    fn turn(&mut self, subject: Subject, wider: bool, text: String) {
        self.add(subject, if wider { Effect::Wider } else { Effect::Narrower }, text);
    }

    fn sort(&mut self) {
        self.0.sort();
        self.0.dedup();
    }
}
