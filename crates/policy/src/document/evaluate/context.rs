//! What a question is about: fields and values.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::fields::Fields;
use crate::document::Value;

/// How deep [`Context::nest`] goes; values further down are reachable as part of the one above.
const MAX_NESTING: usize = 8;

/// Fields by name. A dotted name is a name like any other; [`Context::nest`] has them for nested values.
///
/// Names come from anybody: a long one that has many others below it would be repeated in each of theirs. So each value is
/// kept once, and dotted names are followed when they are asked for.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(from = "BTreeMap<String, Value>")]
pub struct Context {
    /// In the order of giving: of the same name, whoever gave it, the last counts.
    given: Vec<Given>,
}

#[derive(Clone, Debug)]
struct Given {
    field: String,
    value: Value,
    /// What is in it has names, too.
    nested: bool,
}

impl Context {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub fn set(&mut self, field: impl Into<String>, value: impl Into<Value>) {
        self.given.push(Given { field: field.into(), value: value.into(), nested: false });
    }

    #[must_use]
    pub fn with(mut self, field: impl Into<String>, value: impl Into<Value>) -> Self {
        self.set(field, value);
        self
    }

    /// Sets a field and, where its value is a map, `field.name` for what is in it.
    pub fn nest(&mut self, field: &str, value: Value) {
        self.given.push(Given { field: field.to_owned(), value, nested: true });
    }

    #[must_use]
    pub fn get(&self, field: &str) -> Option<&Value> {
        self.find(&Fields::new(vec![field.to_owned()])).pop().flatten()
    }

    /// The value of each of them.
    pub(crate) fn find(&self, fields: &Fields) -> Vec<Option<&Value>> {
        let mut found = vec![None; fields.len()];
        for Given { field, value, nested } in &self.given {
            let levels = if *nested { MAX_NESTING } else { 0 };
            fields.begin().follow(field, value, levels, &mut found);
        }
        found
    }

    /// What was given a name, in alphabetical order; nested values come as part of what they are in.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Value)> {
        let last: BTreeMap<_, _> =
            self.given.iter().map(|given| (given.field.as_str(), &given.value)).collect();
        last.into_iter()
    }
}

impl From<BTreeMap<String, Value>> for Context {
    fn from(fields: BTreeMap<String, Value>) -> Self {
        let plain = |(field, value)| Given { field, value, nested: false };
        Self { given: fields.into_iter().map(plain).collect() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Every name written out.
    #[derive(Default)]
    struct WrittenOut(BTreeMap<String, Value>);

    impl WrittenOut {
        fn nest(&mut self, field: &str, value: &Value, levels: usize) {
            if let Value::Map(entries) = value
                && levels > 0
            {
                for (name, inner) in entries {
                    self.nest(&format!("{field}.{name}"), inner, levels - 1);
                }
            }
            self.0.insert(field.to_owned(), value.clone());
        }
    }

    /// Names that mean several places, and maps that have one twice.
    fn name() -> impl Strategy<Value = String> {
        "[a.\\-]{0,3}"
    }

    fn value() -> impl Strategy<Value = Value> {
        any::<u64>().prop_map(Value::from).prop_recursive(4, 16, 4, |inner| {
            prop::collection::vec((name(), inner), 0..4).prop_map(Value::Map)
        })
    }

    proptest! {
        #[test]
        fn fields_are_found_as_if_they_were_written_out(
            given in prop::collection::vec((name(), value(), any::<bool>()), 0..5),
            others in prop::collection::vec("[a.\\-]{0,8}", 0..5),
        ) {
            let (mut context, mut expected) = (Context::new(), WrittenOut::default());
            for (field, value, nested) in given {
                expected.nest(&field, &value, if nested { MAX_NESTING } else { 0 });
                if nested { context.nest(&field, value) } else { context.set(field, value) }
            }
            let names: Vec<_> = expected.0.keys().cloned().chain(others).collect();
            let found = context.find(&Fields::new(names.clone()));
            for (name, found) in names.iter().zip(found) {
                prop_assert_eq!(found, expected.0.get(name), "{}", name);
                prop_assert_eq!(context.get(name), found, "{}", name);
            }
        }
    }

    #[test]
    fn values_far_down_are_part_of_those_above() {
        let mut value = Value::from(1_u64);
        for _ in 0..10 {
            value = Value::Map(vec![("a".to_owned(), value)]);
        }
        let mut context = Context::new();
        context.nest("a", value);
        assert!(context.get(&"a.".repeat(8)).is_none());
        assert!(context.get(&format!("a{}", ".a".repeat(8))).is_some());
        assert!(context.get(&format!("a{}", ".a".repeat(9))).is_none());
    }

    #[test]
    fn the_last_of_a_name_counts() {
        let map = |name: &str, number: u64| Value::Map(vec![(name.to_owned(), number.into())]);
        let mut context = Context::new();
        context.nest("a", map("b", 1));
        context.nest("a", map("c", 2));
        assert_eq!(context.get("a.b"), Some(&1_u64.into()));
        assert_eq!(context.get("a"), Some(&map("c", 2)));
        context.set("a.b", 3_u64);
        assert_eq!(context.get("a.b"), Some(&3_u64.into()));
        context.nest("a", map("b", 4));
        assert_eq!(context.get("a.b"), Some(&4_u64.into()));
        assert_eq!(context.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["a", "a.b"]);
    }
}
