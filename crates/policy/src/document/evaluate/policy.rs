//! Documents made ready to answer.

use std::collections::HashMap;
use std::sync::Arc;

use super::built::Owner;
use super::fields::Fields;
use super::pattern::Pattern;
use super::{Context, Strategy, as_text};
use crate::document::{Action, Document, Operator, Rule, Value};

/// Rules compiled once. Cheap to share, answers any number of questions at the same time.
#[derive(Debug)]
pub struct Policy {
    pub(super) rules: Vec<Compiled>,
    /// The fields that rules ask for, each once.
    pub(super) fields: Fields,
    pub(super) strategy: Strategy,
    pub(super) default: Action,
    /// Names of the documents, the most general first.
    pub(super) layers: Vec<String>,
    pub(super) digest: Arc<str>,
}

/// One rule in the order of asking.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) rule: Arc<Rule>,
    pub(crate) action: Action,
    /// Which document it is from.
    pub(crate) level: usize,
    /// Bit `n`: the rule is one of those of the documents up to `n` taken together.
    pub(super) counts_in: u64,
    pub(super) field: usize,
    pub(super) test: Test,
}

#[derive(Debug)]
pub(super) enum Test {
    Compare(Operator, Value),
    Pattern(Arc<Pattern>),
    /// The pattern is malformed: only for rules that did not come from text.
    Malformed,
}

/// A rule with its place among several documents.
pub(crate) struct LayerRule<'a> {
    pub(crate) rule: &'a Rule,
    pub(crate) level: usize,
    pub(crate) counts_in: u64,
}

impl Policy {
    /// Of one document, as it is.
    #[must_use]
    pub fn new(document: &Document) -> Self {
        let rules = document.rules.iter().map(|rule| LayerRule { rule, level: 0, counts_in: 1 });
        Self::compile(rules, document, vec![document.name.clone()], document.digest())
    }

    /// Of rules in the order of writing; strategy and default are those of `last`.
    pub(crate) fn compile<'a>(
        rules: impl Iterator<Item = LayerRule<'a>>,
        last: &Document,
        layers: Vec<String>,
        digest: String,
    ) -> Self {
        let mut builder = Builder::default();
        let mut rules: Vec<Compiled> = rules.map(|rule| builder.rule(&rule)).collect();
        // Stable: equal priorities stay in the order of writing.
        rules.sort_by_key(|rule| std::cmp::Reverse(rule.rule.priority));
        Self {
            rules,
            fields: Fields::new(builder.fields),
            strategy: last.strategy,
            default: last.defaults.action,
            layers,
            digest: digest.into(),
        }
    }

    /// SHA-256 of what the policy says, in hexadecimal.
    #[must_use]
    pub fn digest(&self) -> &str {
        &self.digest
    }

    pub(crate) fn layer_name(&self, level: usize) -> &str {
        &self.layers[level]
    }

    /// The fields of a context that rules ask for.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.fields.iter()
    }

    /// Those that the context lacks.
    pub(crate) fn missing(&self, context: &Context) -> Vec<String> {
        let found = self.fields().zip(context.find(&self.fields));
        found.filter(|(_, value)| value.is_none()).map(|(field, _)| field.to_owned()).collect()
    }
}

#[derive(Default)]
struct Builder {
    owner: Owner,
    fields: Vec<String>,
    field_numbers: HashMap<String, usize>,
    patterns: HashMap<String, Option<Arc<Pattern>>>,
}

impl Builder {
    fn rule(&mut self, LayerRule { rule, level, counts_in }: &LayerRule<'_>) -> Compiled {
        let condition = &rule.condition;
        let test = match condition.operator {
            Operator::Matches => {
                self.pattern(&as_text(&condition.value)).map_or(Test::Malformed, Test::Pattern)
            }
            operator => Test::Compare(operator, condition.value.clone()),
        };
        Compiled {
            rule: Arc::new((*rule).clone()),
            action: rule.action,
            level: *level,
            counts_in: *counts_in,
            field: self.field(&condition.field),
            test,
        }
    }

    fn field(&mut self, name: &str) -> usize {
        if let Some(number) = self.field_numbers.get(name) {
            return *number;
        }
        self.fields.push(name.to_owned());
        self.field_numbers.insert(name.to_owned(), self.fields.len() - 1);
        self.fields.len() - 1
    }

    /// The same pattern in many rules is built once.
    fn pattern(&mut self, text: &str) -> Option<Arc<Pattern>> {
        let owned =
            || Pattern::new(text).ok().map(|pattern| Arc::new(pattern.owned_by(self.owner)));
        self.patterns.entry(text.to_owned()).or_insert_with(owned).clone()
    }
}
