//! The fields that rules ask for, found together: each value of a context is looked at once, however many fields there are,
//! and only where some field leads to it.

use std::ops::Range;

use crate::document::Value;

/// Names of fields, each once or several times.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    names: Vec<String>,
    /// Places of the names in alphabetical order.
    alphabetical: Vec<usize>,
}

impl Fields {
    pub(super) fn new(names: Vec<String>) -> Self {
        let mut alphabetical: Vec<_> = (0..names.len()).collect();
        alphabetical.sort_by(|one, other| names[*one].cmp(&names[*other]));
        Self { names, alphabetical }
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        self.names.iter().map(String::as_str)
    }

    pub(super) fn begin(&self) -> Led<'_> {
        Led { fields: self, range: 0..self.names.len(), length: 0 }
    }
}

/// Those fields whose names begin alike, up to where it was followed.
pub(super) struct Led<'f> {
    fields: &'f Fields,
    /// In alphabetical order.
    range: Range<usize>,
    /// Bytes that are the same.
    length: usize,
}

impl Led<'_> {
    /// Puts `value`, which comes next by this name, where it was found, after what is inside it down to so many levels.
    pub(super) fn follow<'v>(
        &self,
        name: &str,
        value: &'v Value,
        levels: usize,
        found: &mut [Option<&'v Value>],
    ) {
        let here = self.next(name);
        if here.range.is_empty() {
            return;
        }
        if let Value::Map(entries) = value
            && levels > 0
        {
            let below = here.next(".");
            if !below.range.is_empty() {
                for (name, inner) in entries {
                    below.follow(name, inner, levels - 1, found);
                }
            }
        }
        for place in &self.fields.alphabetical[here.range] {
            // The shortest are first.
            if self.fields.names[*place].len() > here.length {
                break;
            }
            found[*place] = Some(value);
        }
    }

    fn next(&self, name: &str) -> Self {
        let rest = |place: &usize| &self.fields.names[*place].as_bytes()[self.length..];
        let name = name.as_bytes();
        let ours = &self.fields.alphabetical[self.range.clone()];
        let before = ours.partition_point(|place| rest(place) < name);
        let with = ours[before..].partition_point(|place| rest(place).starts_with(name));
        let start = self.range.start + before;
        Self { fields: self.fields, range: start..start + with, length: self.length + name.len() }
    }
}
