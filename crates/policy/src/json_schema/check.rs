//! A value is held against a schema.

use serde_json::{Map, Number, Value};

use super::path::Path;
use super::scalar::{compare, is_multiple, is_of_type};
use super::{Schema, referred};
use crate::shown;

/// Comparisons of one check. Alternatives in alternatives in references could make more.
const MAX_STEPS: u32 = 100_000;
/// References that lead to references.
const MAX_DEPTH: u32 = 128;

pub(super) fn check(schema: &Schema, value: &Value) -> Result<(), String> {
    let mut walk = Walk { schema, steps: 0, depth: 0, unheard: 0 };
    match walk.fits(&schema.root, value, &Path::Root) {
        Ok(()) => Ok(()),
        Err(Misfit::At(reason)) => Err(reason),
        Err(Misfit::TooCostly) => Err("the schema takes too long to check".to_owned()),
    }
}

/// What looking at so many bytes takes, as so many comparisons.
fn bytes(count: usize) -> usize {
    count >> 10
}

/// What looking up so many names takes, or going through so many words, as so many comparisons.
fn names(count: usize) -> usize {
    count >> 2
}

enum Misfit {
    /// Empty where nobody hears of it.
    At(String),
    /// Whatever the rest says, there is no answer.
    TooCostly,
}

type Fit = Result<(), Misfit>;

struct Walk<'a> {
    schema: &'a Schema,
    steps: u32,
    depth: u32,
    /// Alternatives in alternatives: there it counts only whether a value fits.
    unheard: u32,
}

impl<'a> Walk<'a> {
    fn step(&mut self, count: usize) -> Fit {
        self.steps = self.steps.saturating_add(u32::try_from(count).unwrap_or(u32::MAX));
        if self.steps > MAX_STEPS { Err(Misfit::TooCostly) } else { Ok(()) }
    }

    /// The value at that place does not fit. What is to be said is made up only where somebody hears of it.
    fn no(&self, place: &Path<'_>, problem: impl FnOnce() -> String) -> Fit {
        if self.unheard > 0 {
            return Err(Misfit::At(String::new()));
        }
        let subject = match place {
            Path::Root => "the value".to_owned(),
            below => format!("`{}`", shown(&below.to_string())),
        };
        Err(Misfit::At(format!("{subject} {}", problem())))
    }

    fn fits(&mut self, schema: &'a Value, value: &Value, place: &Path<'_>) -> Fit {
        self.step(1)?;
        let schema = match schema {
            Value::Bool(true) => return Ok(()),
            Value::Object(schema) => schema,
            _ => return self.no(place, || "is not allowed".to_owned()),
        };
        if self.depth >= MAX_DEPTH {
            return Err(Misfit::TooCostly);
        }
        self.depth += 1;
        let fit = self.fits_all(schema, value, place);
        self.depth -= 1;
        fit
    }

    fn fits_all(&mut self, schema: &'a Map<String, Value>, value: &Value, place: &Path<'_>) -> Fit {
        if let Some(Value::String(reference)) = schema.get("$ref") {
            self.step(bytes(reference.len()))?;
            let meant = referred(&self.schema.root, reference).ok_or(Misfit::TooCostly)?;
            self.fits(meant, value, place)?;
        }
        if let Some(types) = schema.get("type") {
            self.fits_type(types, value, place)?;
        }
        if let Some(expected) = schema.get("const")
            && !self.equal(expected, value)?
        {
            return self.no(place, || format!("is not {}", short(expected)));
        }
        if let Some(Value::Array(values)) = schema.get("enum")
            && !self.is_one_of(values, value)?
        {
            let values = || values.iter().take(20).map(short).collect::<Vec<_>>().join(", ");
            return self.no(place, || format!("is none of {}", values()));
        }
        match value {
            Value::Object(value) => self.fits_object(schema, value, place)?,
            Value::Array(value) => self.fits_array(schema, value, place)?,
            Value::String(value) => self.fits_text(schema, value, place)?,
            Value::Number(value) => self.fits_number(schema, value, place)?,
            Value::Null | Value::Bool(_) => {}
        }
        self.fits_alternatives(schema, value, place)
    }

    fn fits_alternatives(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &Value,
        place: &Path<'_>,
    ) -> Fit {
        if let Some(Value::Array(all)) = schema.get("allOf") {
            for each in all {
                self.fits(each, value, place)?;
            }
        }
        if let Some(Value::Array(any)) = schema.get("anyOf")
            && self.count_fitting(any, value, place)? == 0
        {
            return self.no(place, || "fits none of the alternatives".to_owned());
        }
        if let Some(Value::Array(one)) = schema.get("oneOf")
            && self.count_fitting(one, value, place)? != 1
        {
            return self.no(place, || "does not fit exactly one of the alternatives".to_owned());
        }
        if let Some(not) = schema.get("not")
            && self.would_fit(not, value, place)?
        {
            return self.no(place, || "is what it must not be".to_owned());
        }
        Ok(())
    }

    fn count_fitting(
        &mut self,
        schemas: &'a [Value],
        value: &Value,
        place: &Path<'_>,
    ) -> Result<usize, Misfit> {
        let mut count = 0;
        for schema in schemas {
            count += usize::from(self.would_fit(schema, value, place)?);
        }
        Ok(count)
    }

    fn would_fit(
        &mut self,
        schema: &'a Value,
        value: &Value,
        place: &Path<'_>,
    ) -> Result<bool, Misfit> {
        self.unheard += 1;
        let fit = self.fits(schema, value, place);
        self.unheard -= 1;
        match fit {
            Ok(()) => Ok(true),
            Err(Misfit::At(_)) => Ok(false),
            Err(Misfit::TooCostly) => Err(Misfit::TooCostly),
        }
    }

    fn fits_object(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &Map<String, Value>,
        place: &Path<'_>,
    ) -> Fit {
        let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str) {
            self.step(1 + bytes(name.len()))?;
            if !value.contains_key(name) {
                return self.no(place, || format!("has no `{}`", shown(name)));
            }
        }
        self.counted(schema, "Properties", value.len(), place)?;
        if let Some(schema) = schema.get("propertyNames") {
            for name in value.keys() {
                self.step(bytes(name.len()))?;
                let here = Path::Name(place, name);
                self.fits(schema, &Value::String(name.clone()), &here)?;
            }
        }
        let known = schema.get("properties").and_then(Value::as_object);
        let others = schema.get("additionalProperties");
        if known.is_none() && others.is_none() {
            return Ok(());
        }
        self.step(names(value.len()))?;
        for (name, value) in value {
            self.step(bytes(name.len()))?;
            let here = Path::Name(place, name);
            match (known.and_then(|known| known.get(name)), others) {
                (Some(schema), _) => self.fits(schema, value, &here)?,
                (None, Some(Value::Bool(false))) => {
                    return self.no(&here, || "is not known".to_owned());
                }
                (None, Some(schema)) => self.fits(schema, value, &here)?,
                (None, None) => {}
            }
        }
        Ok(())
    }

    fn fits_array(
        &mut self,
        schema: &'a Map<String, Value>,
        value: &[Value],
        place: &Path<'_>,
    ) -> Fit {
        self.counted(schema, "Items", value.len(), place)?;
        let first =
            schema.get("prefixItems").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        let items = schema.get("items");
        for (index, item) in value.iter().enumerate() {
            let Some(schema) = first.get(index).or(items) else { break };
            self.fits(schema, item, &Path::Index(place, index))?;
        }
        if schema.get("uniqueItems") == Some(&Value::Bool(true)) {
            for (index, item) in value.iter().enumerate() {
                for other in &value[..index] {
                    if self.equal(item, other)? {
                        let here = Path::Index(place, index);
                        return self.no(&here, || "is there twice".to_owned());
                    }
                }
            }
        }
        Ok(())
    }

    fn fits_text(&mut self, schema: &'a Map<String, Value>, value: &str, place: &Path<'_>) -> Fit {
        if schema.contains_key("minLength") || schema.contains_key("maxLength") {
            self.step(bytes(value.len()))?;
            self.counted(schema, "Length", value.chars().count(), place)?;
        }
        let pattern = schema.get("pattern").and_then(Value::as_str);
        if let Some(pattern) = pattern {
            self.step(bytes(pattern.len()))?;
            // Every pattern was found when the schema was looked through.
            let known = self.schema.patterns.get(pattern);
            self.step(known.map_or(0, |pattern| pattern.matching(value)))?;
            let fits = known.and_then(|pattern| pattern.occurs_in(value)) == Some(true);
            if !fits {
                return self.no(place, || format!("does not match `{}`", shown(pattern)));
            }
        }
        Ok(())
    }

    fn is_one_of(&mut self, values: &[Value], value: &Value) -> Result<bool, Misfit> {
        for expected in values {
            if self.equal(expected, value)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// As JSON compares: 1 and 1.0 are the same.
    fn equal(&mut self, one: &Value, other: &Value) -> Result<bool, Misfit> {
        self.step(1)?;
        match (one, other) {
            (Value::Number(one), Value::Number(other)) => {
                Ok(compare(one, other) == Some(std::cmp::Ordering::Equal))
            }
            (Value::String(one), Value::String(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                self.step(bytes(one.len()))?;
                Ok(one == other)
            }
            (Value::Array(one), Value::Array(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (one, other) in one.iter().zip(other) {
                    if !self.equal(one, other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (Value::Object(one), Value::Object(other)) => {
                if one.len() != other.len() {
                    return Ok(false);
                }
                for (name, one) in one {
                    self.step(bytes(name.len()))?;
                    let Some(other) = other.get(name) else { return Ok(false) };
                    if !self.equal(one, other)? {
                        return Ok(false);
                    }
                }
                Ok(true)
            }
            (one, other) => Ok(one == other),
        }
    }

    fn fits_type(&mut self, types: &Value, value: &Value, place: &Path<'_>) -> Fit {
        let words = match types {
            Value::Array(words) => words.as_slice(),
            word => std::slice::from_ref(word),
        };
        self.step(names(words.len()))?;
        let mut words = words.iter().filter_map(Value::as_str);
        if words.clone().any(|word| is_of_type(word, value)) {
            return Ok(());
        }
        self.no(place, || {
            format!("is not of type {}", words.by_ref().collect::<Vec<_>>().join(" or "))
        })
    }

    fn fits_number(&self, schema: &Map<String, Value>, value: &Number, place: &Path<'_>) -> Fit {
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
                return self.no(place, || format!("{words} {limit}"));
            }
        }
        if let Some(Value::Number(step)) = schema.get("multipleOf")
            && !is_multiple(value, step)
        {
            return self.no(place, || format!("is not a multiple of {step}"));
        }
        Ok(())
    }

    fn counted(
        &self,
        schema: &Map<String, Value>,
        what: &str,
        count: usize,
        place: &Path<'_>,
    ) -> Fit {
        let limit = |prefix: &str| schema.get(&format!("{prefix}{what}")).and_then(Value::as_u64);
        let count = count as u64;
        if let Some(limit) = limit("min").filter(|limit| count < *limit) {
            return self.no(place, || format!("has {count} {}, fewer than {limit}", of(what)));
        }
        if let Some(limit) = limit("max").filter(|limit| count > *limit) {
            return self.no(place, || format!("has {count} {}, more than {limit}", of(what)));
        }
        Ok(())
    }
}

fn of(what: &str) -> &str {
    match what {
        "Length" => "characters",
        "Items" => "items",
        _ => "properties",
    }
}

fn short(value: &Value) -> String {
    format!("`{}`", shown(&value.to_string()))
}
