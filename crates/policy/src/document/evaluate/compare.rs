//! Comparison as Python has it, because existing documents were written for it.
//!
//! True is one, `1` equals `1.0`, lists compare item by item, and what has no order is an error rather than a no.

use std::cmp::Ordering;
use std::collections::HashMap;

use crate::document::value::FEW;
use crate::document::{Operator, Value};

/// Two values that an operator cannot be asked about.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{left} cannot be compared with {right} by `{operator}`")]
pub(crate) struct Unlike {
    left: &'static str,
    right: &'static str,
    operator: &'static str,
}

/// Every operator but `matches`, which needs its compiled pattern.
pub(super) fn holds(operator: Operator, field: &Value, value: &Value) -> Result<bool, Unlike> {
    let unlike = || Unlike { left: field.kind(), right: value.kind(), operator: operator.as_str() };
    let ordered = || order(field, value).ok_or_else(unlike);
    let within = |container, item| contains(container, item).ok_or_else(unlike);
    Ok(match operator {
        Operator::Eq => equal(field, value),
        Operator::Ne => !equal(field, value),
        Operator::Gt => ordered()?.is_gt(),
        Operator::Lt => ordered()?.is_lt(),
        Operator::Gte => ordered()?.is_ge(),
        Operator::Lte => ordered()?.is_le(),
        Operator::In => within(value, field)?,
        Operator::NotIn => !within(value, field)?,
        Operator::Contains => within(field, value)?,
        Operator::Matches => return Err(unlike()),
    })
}

fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Text(left), Value::Text(right)) => left == right,
        (Value::Null, Value::Null) => true,
        (Value::List(left), Value::List(right)) => {
            left.len() == right.len() && left.iter().zip(right).all(|(l, r)| equal(l, r))
        }
        (Value::Map(left), Value::Map(right)) => {
            if left.len() != right.len() {
                return false;
            }
            if left.len() <= FEW {
                return left.iter().all(|(name, value)| {
                    right.iter().any(|(other, found)| name == other && equal(value, found))
                });
            }
            let right: HashMap<_, _> = right.iter().map(|(name, value)| (name, value)).collect();
            left.iter()
                .all(|(name, value)| right.get(name).is_some_and(|found| equal(value, found)))
        }
        _ => match (Number::of(left), Number::of(right)) {
            (Some(left), Some(right)) => left.cmp(right).is_eq(),
            _ => false,
        },
    }
}

/// `None` where there is no order between the two.
fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (left, right) {
        // Bytes of UTF-8 are in the order of the characters.
        (Value::Text(left), Value::Text(right)) => Some(left.cmp(right)),
        (Value::List(left), Value::List(right)) => {
            match left.iter().zip(right).find(|(l, r)| !equal(l, r)) {
                Some((left, right)) => order(left, right),
                None => Some(left.len().cmp(&right.len())),
            }
        }
        _ => Some(Number::of(left)?.cmp(Number::of(right)?)),
    }
}

/// `None` where the container can hold nothing, or not such an item.
fn contains(container: &Value, item: &Value) -> Option<bool> {
    match (container, item) {
        (Value::Text(text), Value::Text(part)) => Some(text.contains(part.as_str())),
        (Value::List(items), _) => Some(items.iter().any(|found| equal(found, item))),
        (Value::Map(_), Value::List(_) | Value::Map(_)) => None,
        (Value::Map(entries), Value::Text(name)) => {
            Some(entries.iter().any(|(found, _)| found == name))
        }
        (Value::Map(_), _) => Some(false),
        _ => None,
    }
}

#[derive(Clone, Copy)]
enum Number {
    Int(i128),
    Float(f64),
}

impl Number {
    fn of(value: &Value) -> Option<Self> {
        match value {
            Value::Bool(value) => Some(Self::Int(i128::from(*value))),
            Value::Int(value) => Some(Self::Int(*value)),
            Value::Float(value) => Some(Self::Float(*value)),
            _ => None,
        }
    }

    fn cmp(self, other: Self) -> Ordering {
        match (self, other) {
            (Self::Int(left), Self::Int(right)) => left.cmp(&right),
            // Values are finite, so there is always an order.
            (Self::Float(left), Self::Float(right)) => {
                left.partial_cmp(&right).unwrap_or(Ordering::Equal)
            }
            (Self::Int(left), Self::Float(right)) => mixed(left, right),
            (Self::Float(left), Self::Int(right)) => mixed(right, left).reverse(),
        }
    }
}

/// Exact: a large integer is not rounded to compare it.
#[allow(clippy::cast_possible_truncation)] // `as` saturates, and whole numbers here are far from the edge.
fn mixed(int: i128, float: f64) -> Ordering {
    let whole = float.trunc();
    int.cmp(&(whole as i128))
        .then_with(|| 0.0.partial_cmp(&(float - whole)).unwrap_or(Ordering::Equal))
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operator::*;

    #[test]
    fn operators() {
        let check = |field: &str, operator, value: &str, expected: Option<bool>| {
            let field: Value = serde_json::from_str(field).unwrap();
            let value: Value = serde_json::from_str(value).unwrap();
            let found = holds(operator, &field, &value).ok();
            assert_eq!(found, expected, "{field} {operator} {value}");
        };
        check("1", Eq, "1.0", Some(true));
        check("true", Eq, "1", Some(true));
        check("\"1\"", Eq, "1", Some(false));
        check("[1, \"a\"]", Eq, "[true, \"a\"]", Some(true));
        check("{\"a\": 1, \"b\": 2}", Eq, "{\"b\": 2, \"a\": 1.0}", Some(true));
        check("9007199254740993", Eq, "9007199254740992.0", Some(false));
        check("9007199254740993", Gt, "9007199254740992.0", Some(true));
        check("-1", Lt, "-0.5", Some(true));
        check("\"b\"", Gt, "\"a\"", Some(true));
        check("\"b\"", Gt, "1", None);
        check("[1, 2]", Lt, "[1, 3]", Some(true));
        check("[1]", Lt, "[1, 3]", Some(true));
        check("[1, \"a\"]", Lt, "[2, 3]", Some(true));
        check("[\"a\"]", Lt, "[2]", None);
        check("{}", Gt, "{}", None);
        check("null", Gte, "null", None);
        check("\"a\"", In, "[\"a\", \"b\"]", Some(true));
        check("\"c\"", NotIn, "[\"a\", \"b\"]", Some(true));
        check("\"a\"", In, "\"cat\"", Some(true));
        check("1", In, "\"cat\"", None);
        check("\"a\"", In, "{\"a\": 1}", Some(true));
        check("1", In, "{\"a\": 1}", Some(false));
        check("[1]", In, "{\"a\": 1}", None);
        check("1", In, "5", None);
        check("\"cat\"", Contains, "\"a\"", Some(true));
        check("[1, 2]", Contains, "2.0", Some(true));
        check("5", Contains, "5", None);
        check("\"a\"", Contains, "null", None);
    }

    #[test]
    fn large_maps_are_compared_name_by_name() {
        let names = || (0..100_000_u64).map(|n| (format!("a{n}"), Value::from(n)));
        let map = |entries: Vec<_>| Value::Map(entries);
        let same = map(names().rev().collect());
        assert_eq!(holds(Eq, &map(names().collect()), &same), Ok(true));
        let other = map(names().map(|(name, n)| (format!("{name}b"), n)).collect());
        assert_eq!(holds(Eq, &other, &same), Ok(false));
        let changed = map(names().map(|(name, _)| (name, Value::from(5_u64))).collect());
        assert_eq!(holds(Eq, &changed, &same), Ok(false));
    }
}
