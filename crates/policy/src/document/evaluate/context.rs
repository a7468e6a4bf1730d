//! What a question is about: fields and values.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::document::Value;

/// How deep [`Context::nest`] goes; values further down are reachable as part of the one above.
const MAX_NESTING: usize = 8;

/// Fields by name. A dotted name is a name like any other; [`Context::nest`] makes them from nested values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Context(BTreeMap<String, Value>);

impl Context {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub fn set(&mut self, field: impl Into<String>, value: impl Into<Value>) {
        self.0.insert(field.into(), value.into());
    }

    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        self.set(field, value);
        self
    }

    /// Sets a field and, where its value is a map, `field.name` for what is in it.
    pub fn nest(&mut self, field: &str, value: Value) {
        self.nest_below(field, value, 0);
    }

    fn nest_below(&mut self, field: &str, value: Value, depth: usize) {
        if let Value::Map(entries) = &value
            && depth < MAX_NESTING
        {
            for (name, inner) in entries {
                self.nest_below(&format!("{field}.{name}"), inner.clone(), depth + 1);
            }
        }
        self.0.insert(field.to_owned(), value);
    }

    #[must_use]
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.0.get(field)
    }

    /// In alphabetical order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        self.0.iter().map(|(field, value)| (field.as_str(), value))
    }
}
