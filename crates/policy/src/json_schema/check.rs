//! A value is held against a schema.

use serde_json::{Map, Number, Value};

use super::{Schema, referred};

/// Comparisons of one check. Alternatives in alternatives in references could make more.
const MAX_STEPS: u32 = 100_000;
/// References that lead to references.
const MAX_DEPTH: u32 = 128;

pub(super) fn check(schema: &Schema, value: &Value) -> Result<(), String> {
    let mut walk = Walk { schema, steps: 0, depth: 0 };
    match walk.fits(&schema.root, value, "") {
        Ok(()) => Ok(()),
        Err(Misfit::At(reason)) => Err(reason),
        Err(Misfit::TooCostly) => Err("the schema takes too long to check".to_owned()),
    }
}

enum Misfit {
    At(String),
    /// Whatever the rest says, there is no answer.
    TooCostly,
}

type Fit = Result<(), Misfit>;

struct Walk<'a> {
    schema: &'a Schema,
    steps: u32,
    depth: u32,
}

impl<'a> Walk<'a> {
    fn step(&mut self, count: usize) -> Fit {
        self.steps = self.steps.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if self.steps > MAX_STEPS { Err(Misfit::TooCostly) } else { Ok(()) }
    }

    fn fits(&mut self, schema: &'a Value, value: &Value, place: &str) -> Fit {
        self.step(1)?;
        let schema = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(schema) => schema,
            _ => return no(place, "is not allowed"),
        };
        if self.depth >= MAX_DEPTH {
            return Err(Misfit::TooCostly);
        }
        self.depth += 1;
        let fit = self.fits_all(schema, value, place);
        self.depth -= 1;
        fit
    }

    fn fits_all(&mut self, schema: &'a Map<String, Value>, value: &Value, place: &str) -> Fit {
        if let Some(Value::String(reference)) = schema.get("$ref") {
            let meant = referred(&self.schema.root, reference).ok_or(Misfit::TooCostly)?;
            self.fits(meant, value, place)?;
        }
        if let Some(types) = schema.get("type") {
            fits_type(types, value, place)?;
        }
        if let Some(expected) = schema.get("const")
            && !self.equal(expected, value)?
        {
            return no(place, &format!("is not {}", short(expected)));
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            let mut found = false;
            for expected in values {
                found = found || self.equal(expected, value)?;
            }
            if !found {
                let values: Vec<_> = values.iter().take(20).map(short).collect();
                return no(place, &format!("is none of {}", values.join(", ")));
            }
        }
        match value {
            Value::Object(value) => self.fits_object(schema, value, place)?,
            Value::Array(value) => self.fits_array(schema, value, place)?,
            Value::String(value) => self.fits_text(schema, value, place)?,
            Value::Number(value) => fits_number(schema, value, place)?,
            Value::Null | Value::Bool(_) => {}
        }
        self.fits_alternatives(schema, value, place)
    }

    fn fits_alternatives(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &Value,
        place: &str,
    ) -> Fit {
        if let Some(Value::Array(all)) = schema.get("allOf") {
            for each in all {
                self.fits(each, value, place)?;
            }
        }
        if let Some(Value::Array(any)) = schema.get("anyOf")
            && self.count_fitting(any, value, place)? == 0
        {
            return no(place, "fits none of the alternatives");
        }
        if let Some(Value::Array(one)) = schema.get("oneOf")
            && self.count_fitting(one, value, place)? != 1
        {
            return no(place, "does not fit exactly one of the alternatives");
        }
        if let Some(not) = schema.get("not") {
            match self.fits(not, value, place) {
                Ok(()) => return no(place, "is what it must not be"),
                Err(Misfit::At(_)) => {}
                Err(Misfit::TooCostly) => return Err(Misfit::TooCostly),
            }
        }
        Ok(())
    }

    fn count_fitting(
        &mut self,
        schemas: &'a [Value],
        value: &Value,
        place: &str,
    ) -> Result<usize, Misfit> {
        let mut count = 0;
        for schema in schemas {
            match self.fits(schema, value, place) {
                Ok(()) => count += 1,
                Err(Misfit::At(_)) => {}
                Err(Misfit::TooCostly) => return Err(Misfit::TooCostly),
            }
        }
        Ok(count)
    }

    fn fits_object(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &Map<String, Value>,
        place: &str,
    ) -> Fit {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            self.step(1)?;
            if !value.contains_key(name) {
                return no(place, &format!("has no `{}`", crate::shown(name)));
            }
        }
        counted(schema, "Properties", value.len(), place)?;
        let known = schema.get("properties").and_then(Value::as_object);
        let others = schema.get("additionalProperties");
        if let Some(schema) = schema.get("propertyNames") {
            for name in value.keys() {
                self.fits(schema, &Value::String(name.clone()), &format!("{place}/{name}"))?;
            }
        }
        for (name, value) in value {
            let here = format!("{place}/{name}");
            match (known.and_then(|known| known.get(name)), others) {
                (Some(schema), _) => self.fits(schema, value, &here)?,
                (None, Some(Value::Bool(false))) => return no(&here, "is not known"),
                (None, Some(schema)) => self.fits(schema, value, &here)?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn fits_array(&mut self, schema: &'a Map<String, Value>, value: &[Value], place: &str) -> Fit {
        counted(schema, "Items", value.len(), place)?;
        let first =
            schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let items = schema.get("items");
        for (index, item) in value.iter().enumerate() {
            if let Some(schema) = first.get(index).or(items) {
                self.fits(schema, item, &format!("{place}/{index}"))?;
            }
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
            for (index, item) in value.iter().enumerate() {
                for other in &value[..index] {
                    if self.equal(item, other)? {
                        return no(&format!("{place}/{index}"), "is there twice");
                    }
                }
            }
        }
        Ok(())
    }

    fn fits_text(&mut self, schema: &'a Map<String, Value>, value: &str, place: &str) -> Fit {
        if schema.contains_key("minLength") || schema.contains_key("maxLength") {
            counted(schema, "Length", value.chars().count(), place)?;
        }
        let pattern = schema.get("pattern").and_then(Value::as_str);
        if let Some(pattern) = pattern {
            // Every pattern was found when the schema was looked through.
            let known = self.schema.patterns.get(pattern);
            self.step(known.map_or(0, |pattern| pattern.matching(value)))?;
            let fits = known.and_then(|pattern| pattern.occurs_in(value)) == Some(true);
            if !fits {
                return no(place, &format!("does not match `{}`", crate::shown(pattern)));
            }
        }
        Ok(())
    }

    /// As JSON compares: 1 and 1.0 are the same.
    fn equal(&mut self, one: &Value, other: &Value) -> Result<bool, Misfit> {
        self.step(1)?;
        Ok(match (one, other) {
            (Value::Number(one), Value::Number(other)) => {
                compare(one, other) == Some(std::cmp::Ordering::Equal)
            }
            (Value::Array(one), Value::Array(other)) => {
                let mut same = one.len() == other.len();
                for (one, other) in one.iter().zip(other) {
                    same = same && self.equal(one, other)?;
                }
                same
            }
            (Value::Object(one), Value::Object(other)) => {
                let mut same = one.len() == other.len();
                for (name, one) in one {
                    same = same
                        && match other.get(name) {
                            Some(other) => self.equal(one, other)?,
                            None => false,
                        };
                }
                same
            }
            (one, other) => one == other,
        })
    }
}

fn no(place: &str, problem: &str) -> Fit {
    let subject = match place {
        "" => "the value".to_owned(),
        place => format!("`{}`", crate::shown(place)),
    };
    Err(Misfit::At(format!("{subject} {problem}")))
}

fn fits_type(types: &Value, value: &Value, place: &str) -> Fit {
    let is = |word: &Value| match (word.as_str().unwrap_or_default(), value) {
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
    };
    let (fits, expected) = match types {
        Value::Array(words) => {
            let names: Vec<_> = words.iter().filter_map(Value::as_str).collect();
            (words.iter().any(is), names.join(" or "))
        }
        word => (is(word), word.as_str().unwrap_or_default().to_owned()),
    };
    if fits { Ok(()) } else { no(place, &format!("is not of type {expected}")) }
}

fn fits_number(schema: &Map<String, Value>, value: &Number, place: &str) -> Fit {
    use std::cmp::Ordering::{Greater, Less};
    for (keyword, wrong, words) in [
        ("minimum", &[Less][..], "is below"),
        ("maximum", &[Greater][..], "is above"),
        ("exclusiveMinimum", &[Less, std::cmp::Ordering::Equal][..], "is not above"),
        ("exclusiveMaximum", &[Greater, std::cmp::Ordering::Equal][..], "is not below"),
    ] {
        if let Some(Value::Number(limit)) = schema.get(keyword)
            && compare(value, limit).is_none_or(|order| wrong.contains(&order))
        {
            return no(place, &format!("{words} {limit}"));
        }
    }
    if let Some(Value::Number(step)) = schema.get("multipleOf") {
        let whole = match (value.as_i64(), step.as_i64()) {
            (Some(value), Some(step)) => step != 0 && value % step == 0,
            _ => {
                let parts = value.as_f64().unwrap_or(f64::NAN) / step.as_f64().unwrap_or(f64::NAN);
                (parts - parts.round()).abs() < 1e-9
            }
        };
        if !whole {
            return no(place, &format!("is not a multiple of {step}"));
        }
    }
    Ok(())
}

/// Whole numbers as they are, others as good as they can be.
fn compare(one: &Number, other: &Number) -> Option<std::cmp::Ordering> {
    match (one.as_i128(), other.as_i128()) {
        (Some(one), Some(other)) => Some(one.cmp(&other)),
        _ => one.as_f64()?.partial_cmp(&other.as_f64()?),
    }
}

fn counted(schema: &Map<String, Value>, what: &str, count: usize, place: &str) -> Fit {
    let limit = |prefix: &str| schema.get(&format!("{prefix}{what}")).and_then(Value::as_u64);
    let count = count as u64;
    if let Some(limit) = limit("min").filter(|limit| count < *limit) {
        return no(place, &format!("has {count} {}, fewer than {limit}", of(what)));
    }
    if let Some(limit) = limit("max").filter(|limit| count > *limit) {
        return no(place, &format!("has {count} {}, more than {limit}", of(what)));
    }
    Ok(())
}

fn of(what: &str) -> &str {
    match what {
        "Length" => "characters",
        "Items" => "items",
        _ => "properties",
    }
}

fn short(value: &Value) -> String {
    format!("`{}`", crate::shown(&value.to_string()))
}
