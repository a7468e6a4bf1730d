//! What is asked of one value by itself.

use serde_json::{Number, Value};

pub(super) fn is_of_type(word: &str, value: &Value) -> bool {
    match (word, value) {
        ("integer", Value::Number(number)) => {
            number.is_i64() || number.is_u64() || number.as_f64().is_some_and(|n| n.fract() == 0.0)
        }
        ("number", Value::Number(_))
        | ("string", Value::String(_))
        | ("boolean", Value::Bool(_))
        | ("null", Value::Null)
        | ("array", Value::Array(_))
        | ("object", Value::Object(_)) => true,
        _ => false,
    }
}

pub(super) fn is_multiple(value: &Number, step: &Number) -> bool {
    match (value.as_i64(), step.as_i64()) {
        (Some(value), Some(step)) => step != 0 && value % step == 0,
        _ => {
            let parts = value.as_f64().unwrap_or(f64::NAN) / step.as_f64().unwrap_or(f64::NAN);
            (parts - parts.round()).abs() < 1e-9
        }
    }
}

/// Whole numbers as they are, others as good as they can be.
pub(super) fn compare(one: &Number, other: &Number) -> Option<std::cmp::Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}
