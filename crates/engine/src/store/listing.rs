//! Questions to the SQLite store whose conditions depend on what was asked.

use rusqlite::types::Value;

use crate::Scope;
use crate::query::Place;

/// A question for a part of many records, with who asks.
#[derive(Clone, Debug)]
pub(crate) struct Listing<'a, Q> {
    pub(crate) scope: &'a Scope,
    pub(crate) query: &'a Q,
    /// Where the page before ended.
    pub(crate) after: Option<Place>,
    pub(crate) limit: usize,
}

/// Conditions of a question, all of which must hold, with their values in order.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    text: String,
    values: Vec<Value>,
}

impl Conditions {
    /// `condition` has one `?` for each value.
    pub(super) fn add(&mut self, condition: &str, values: impl IntoIterator<Item = Value>) {
        self.text.push_str(if self.text.is_empty() { " WHERE " } else { " AND " });
        self.text.push_str(condition);
        self.values.extend(values);
    }

    pub(super) fn add_text(&mut self, condition: &str, value: &str) {
        self.add(condition, [text(value)]);
    }

    /// `column` is one of the words; nothing where there are none.
    pub(super) fn add_any<'w>(
        &mut self,
        column: &str,
        words: impl ExactSizeIterator<Item = &'w str>,
    ) {
        if words.len() > 0 {
            let marks = vec!["?"; words.len()].join(", ");
            self.add(&format!("{column} IN ({marks})"), words.map(text));
        }
    }

    /// `sandbox` is the column with the sandbox's id.
    pub(super) fn add_scope(&mut self, scope: &Scope, sandbox: &str) {
        match scope {
            Scope::All => {}
            Scope::Tenant(tenant) => self.add_text("tenant = ?", tenant.as_str()),
            Scope::Sandbox { tenant, id } => {
                self.add_text("tenant = ?", tenant.as_str());
                self.add_text(&format!("{sandbox} = ?"), id.as_str());
            }
        }
    }

    /// The whole question for all that meets them, and its values.
    pub(super) fn all(self, select: &str) -> (String, Vec<Value>) {
        (format!("{select}{}", self.text), self.values)
    }

    /// The whole question for the first that meet them, and its values.
    pub(super) fn finish(
        mut self,
        select: &str,
        order: &str,
        limit: usize,
    ) -> (String, Vec<Value>) {
        self.values.push(Value::Integer(i64::try_from(limit).unwrap_or(i64::MAX)));
        (format!("{select}{} ORDER BY {order} LIMIT ?", self.text), self.values)
    }
}

pub(super) fn text(value: &str) -> Value {
    Value::Text(value.to_owned())
}
