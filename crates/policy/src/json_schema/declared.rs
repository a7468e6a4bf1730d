//! A schema is looked through before it is used.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::path::Path;
use super::{Reading, referred};
use crate::document::{Looks, Pattern};
use crate::limits::format_bytes;
use crate::shown;

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
/// A schema in a schema in a schema.
const MAX_DEPTH: usize = 64;

/// What is done with a pattern; the error is what is wrong with it.
type See<'s> = &'s mut dyn FnMut(&str) -> Result<(), String>;

/// Looks through all of it, and reads its patterns, of which each has at most so many bytes.
pub(super) fn patterns(
    root: &Value,
    longest: usize,
    reading: &mut Reading,
) -> Result<HashMap<String, Pattern>, String> {
    let mut patterns = HashMap::new();
    let mut read = |text: &str| {
        if patterns.contains_key(text) {
            return Ok(());
        }
        if patterns.len() >= MAX_PATTERNS {
            return Err("is one pattern too many".to_owned());
        }
        if text.len() > longest {
            let longest = format_bytes(longest as u64);
            return Err(format!("`{}` is longer than {longest}", shown(text)));
        }
        let pattern =
            Pattern::as_written(text.to_owned(), &mut reading.left).map_err(no_pattern)?;
        patterns.insert(text.to_owned(), pattern);
        Ok(())
    };
    look_through(root, root, &Path::Root, &mut read)?;
    Ok(patterns)
}

/// Looks through all of it, and at its patterns as far as they are quickly told.
pub(super) fn look_at(root: &Value, looks: &mut Looks) -> Result<(), String> {
    look_through(root, root, &Path::Root, &mut |text| {
        Pattern::look_at_as_written(text, looks).map_err(no_pattern)
    })
}

fn no_pattern(reason: &str) -> String {
    format!("is not a regular expression without look-around: it {reason}")
}

fn look_through(
    root: &Value,
    schema: &Value,
    place: &Path<'_>,
    see: See<'_>,
) -> Result<(), String> {
    let schema = match schema {
        Value::Bool(_) => return Ok(()),
        Value::Object(schema) => schema,
        _ => return Err(at(place, "is neither an object nor true or false")),
    };
    if place.depth() > 2 * MAX_DEPTH {
        return Err(at(place, "is nested too deeply"));
    }
    for (keyword, value) in schema {
        let here = Path::Name(place, keyword);
        let mut inner = |value: &Value, place: &Path<'_>| look_through(root, value, place, see);
        match keyword.as_str() {
            "properties" | "$defs" | "definitions" => {
                for (name, value) in object(value, &here)? {
                    inner(value, &Path::Name(&here, name))?;
                }
            }
            "items" | "additionalProperties" | "propertyNames" | "not" => inner(value, &here)?,
            "prefixItems" | "anyOf" | "allOf" | "oneOf" => {
                let list = value.as_array().filter(|list| !list.is_empty());
                let list = list.ok_or_else(|| at(&here, "is not a list of schemas"))?;
                for (index, value) in list.iter().enumerate() {
                    inner(value, &Path::Index(&here, index))?;
                }
            }
            "pattern" => {
                let text = value.as_str().ok_or_else(|| at(&here, "is not text"))?;
                see(text).map_err(|problem| at(&here, &problem))?;
            }
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

fn at(place: &Path<'_>, problem: &str) -> String {
    let place = match place {
        Path::Root => "/".to_owned(),
        below => below.to_string(),
    };
    format!("`{}` {problem}", shown(&place))
}

fn object<'a>(value: &'a Value, place: &Path<'_>) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| at(place, "is not an object"))
}

fn types(value: &Value, place: &Path<'_>) -> Result<(), String> {
    let known = |value: &Value| value.as_str().is_some_and(|word| TYPES.contains(&word));
    let fine = match value {
        Value::Array(words) => !words.is_empty() && words.iter().all(known),
        word => known(word),
    };
    if fine { Ok(()) } else { Err(at(place, "is none of the types of JSON")) }
}
