//! One rule after another, asked about the same context.

use std::borrow::Cow;

use super::compare::holds;
use super::fields::Fields;
use super::pattern::Pattern;
use super::policy::{Compiled, Test};
use super::{Context, as_text};
use crate::document::Value;

/// Comparisons that matching may take for one answer: a hundred small patterns about 160 KiB of text, or all that a policy
/// may have about 8 KiB. Most take milliseconds for as much; one that is made to be slow takes some fifteen seconds.
const MAX_MATCHING: usize = 1 << 20;

pub(super) struct Asking<'c> {
    /// By the number of their field.
    values: Vec<Option<&'c Value>>,
    /// What patterns are looked for in, written when the first of them asks.
    texts: Vec<Option<Cow<'c, str>>>,
    /// Of what matching may take.
    left: usize,
}

impl<'c> Asking<'c> {
    pub(super) fn new(context: &'c Context, fields: &Fields) -> Self {
        let values = context.find(fields);
        Self { texts: vec![None; values.len()], values, left: MAX_MATCHING }
    }

    /// Whether the rule matches. Without a value there is nothing that could.
    pub(super) fn ask(&mut self, rule: &Compiled) -> Result<bool, String> {
        let Some(value) = self.values[rule.field].filter(|value| **value != Value::Null) else {
            return Ok(false);
        };
        match &rule.test {
            Test::Compare(operator, other) => {
                holds(*operator, value, other).map_err(|unlike| unlike.to_string())
            }
            Test::Pattern(pattern) => self.look_for(pattern, rule.field, value),
            Test::Malformed => Err("its pattern is malformed".to_owned()),
        }
    }

    fn look_for(
        &mut self,
        pattern: &Pattern,
        field: usize,
        value: &'c Value,
    ) -> Result<bool, String> {
        let text = self.texts[field].get_or_insert_with(|| as_text(value));
        let rest = self.left.checked_sub(pattern.matching(text));
        // What was too much for one stays too much for those after it, so that the answer does not come from them.
        self.left = rest.unwrap_or(0);
        if rest.is_none() {
            return Err("its pattern, with those before it, takes too long to look for".to_owned());
        }
        pattern.occurs_in(text).ok_or_else(|| "its pattern cannot be built".to_owned())
    }
}
