//! A value or a list of them: `method: GET` and `method: [GET, HEAD]`.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, IntoDeserializer, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Any number of values; none means that every one is meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T> OneOrMany<T> {
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether `value` is meant: one of these fits, or there is none to fit.
    pub fn admits(&self, fits: impl FnMut(&T) -> bool) -> bool {
        self.0.is_empty() || self.0.iter().any(fits)
    }
}

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Either(PhantomData))
    }
}

struct Either<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
    type Value = OneOrMany<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value or a list of values")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        T::deserialize(text.into_deserializer()).map(|one| OneOrMany(vec![one]))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<Self::Value, E> {
        T::deserialize(number.into_deserializer()).map(|one| OneOrMany(vec![one]))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Self::Value, E> {
        T::deserialize(number.into_deserializer()).map(|one| OneOrMany(vec![one]))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        let many = Vec::deserialize(SeqAccessDeserializer::new(items))?;
        if many.is_empty() {
            return Err(A::Error::custom("this list is empty, so that nothing is meant"));
        }
        Ok(OneOrMany(many))
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMany<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("OneOrMany_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        let many = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": many, "minItems": 1 }] })
    }
}
