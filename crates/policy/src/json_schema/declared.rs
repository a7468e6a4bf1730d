//! A schema is looked through before it is used.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::referred;
use crate::document::Pattern;

/// Keywords that describe and check nothing.
const DESCRIPTIVE: [&str; 18] = [
    "$comment",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "default",
    "deprecated",
    "description",
    "discriminator",
    "example",
    "examples",
    "format",
    "nullable",
    "readOnly",
    "strict",
    "title",
    "writeOnly",
    "$anchor",
];

const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];

/// Patterns of one schema.
const MAX_PATTERNS: usize = 64;
/// What reading them may take: a quarter of a second. Sixty classes like `[^x]` in patterns that ignore case take as much.
const MAX_READING: u64 = 1 << 26;
/// A schema in a schema in a schema.
const MAX_DEPTH: usize = 64;

/// Looks through all of it.
pub(super) fn patterns(root: &Value) -> Result<HashMap<String, Pattern>, String> {
    let mut patterns = Patterns { all: HashMap::new(), left: MAX_READING };
    look_through(root, root, "", &mut patterns)?;
    Ok(patterns.all)
}

struct Patterns {
    all: HashMap<String, Pattern>,
    /// Of what reading may take.
    left: u64,
}

fn look_through(
    root: &Value,
    schema: &Value,
    place: &str,
    patterns: &mut Patterns,
) -> Result<(), String> {
    let schema = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(schema) => schema,
        _ => return Err(at(place, "is neither an object nor true or false")),
    };
    if place.matches('/').count() > 2 * MAX_DEPTH {
        return Err(at(place, "is nested too deeply"));
    }
    for (keyword, value) in schema {
        let here = format!("{place}/{keyword}");
        let mut inner = |value: &Value, place: &str| look_through(root, value, place, patterns);
        match keyword.as_str() {
            "properties" | "$defs" | "definitions" => {
                for (name, value) in object(value, &here)? {
                    inner(value, &format!("{here}/{name}"))?;
                }
            }
            "items" | "additionalProperties" | "propertyNames" | "not" => inner(value, &here)?,
            "prefixItems" | "anyOf" | "allOf" | "oneOf" => {
                let list = value.as_array().filter(|list| !list.is_empty());
                let list = list.ok_or_else(|| at(&here, "is not a list of schemas"))?;
                for (index, value) in list.iter().enumerate() {
                    inner(value, &format!("{here}/{index}"))?;
                }
            }
            "pattern" => pattern(value, &here, patterns)?,
            "$ref" => {
                if value.as_str().and_then(|reference| referred(root, reference)).is_none() {
                    return Err(at(&here, "does not lead to `#/$defs/NAME` of this schema"));
                }
            }
            "type" => types(value, &here)?,
            "required" => {
                let list = value.as_array();
                if !list.is_some_and(|list| list.iter().all(Value::is_string)) {
                    return Err(at(&here, "is not a list of names"));
                }
            }
            "enum" => {
                if !value.is_array() {
                    return Err(at(&here, "is not a list of values"));
                }
            }
            "minLength" | "maxLength" | "minItems" | "maxItems" | "minProperties"
            | "maxProperties" => {
                if !value.is_u64() {
                    return Err(at(&here, "is not a count"));
                }
            }
            "minimum" | "maximum" | "exclusiveMinimum" | "exclusiveMaximum" => {
                if !value.is_number() {
                    return Err(at(&here, "is not a number"));
                }
            }
            "multipleOf" => {
                if !value.as_f64().is_some_and(|number| number > 0.0) {
                    return Err(at(&here, "is not a number above 0"));
                }
            }
            "uniqueItems" => {
                if !value.is_boolean() {
                    return Err(at(&here, "is neither true nor false"));
                }
            }
            "const" => {}
            word if DESCRIPTIVE.contains(&word) || word.starts_with("x-") => {}
            _ => return Err(at(&here, "is a keyword that is not checked here")),
        }
    }
    Ok(())
}

fn at(place: &str, problem: &str) -> String {
    let place = if place.is_empty() { "/" } else { place };
    format!("`{}` {problem}", crate::shown(place))
}

fn object<'a>(value: &'a Value, place: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| at(place, "is not an object"))
}

fn types(value: &Value, place: &str) -> Result<(), String> {
    let known = |value: &Value| value.as_str().is_some_and(|word| TYPES.contains(&word));
    let fine = match value {
        Value::Array(words) => !words.is_empty() && words.iter().all(known),
        word => known(word),
    };
    if fine { Ok(()) } else { Err(at(place, "is none of the types of JSON")) }
}

fn pattern(value: &Value, place: &str, patterns: &mut Patterns) -> Result<(), String> {
    let Some(text) = value.as_str() else { return Err(at(place, "is not text")) };
    if patterns.all.contains_key(text) {
        return Ok(());
    }
    if patterns.all.len() >= MAX_PATTERNS {
        return Err(at(place, "is one pattern too many"));
    }
    let pattern = Pattern::as_written(text.to_owned(), &mut patterns.left).map_err(|reason| {
        at(place, &format!("is not a regular expression without look-around: it {reason}"))
    })?;
    patterns.all.insert(text.to_owned(), pattern);
    Ok(())
}
