//! Serde's view of the tree: every error gets the place of the value, or key, that it is about.

use serde::de::{
    DeserializeSeed, Deserializer, EnumAccess, Error, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, VariantAccess, Visitor,
};

use super::Refusal;
use super::node::{Content, Entry, Node};

impl<'de> Deserializer<'de> for &'de Node<'_> {
    type Error = Refusal;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        let found = match &self.content {
            Content::Null => visitor.visit_unit(),
            Content::Bool(value) => visitor.visit_bool(*value),
            Content::Int(value) => match (i64::try_from(*value), u64::try_from(*value)) {
                (_, Ok(value)) => visitor.visit_u64(value),
                (Ok(value), _) => visitor.visit_i64(value),
                _ => visitor.visit_i128(*value),
            },
            Content::Float(value) => visitor.visit_f64(*value),
            Content::Text(text) => visitor.visit_borrowed_str(text),
            Content::List(items) => visitor.visit_seq(Items(items.iter())),
            Content::Map(entries) => {
                visitor.visit_map(Entries { rest: entries.iter(), value: None })
            }
        };
        found.map_err(|refusal| refusal.at(self.position))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Refusal> {
        match self.content {
            Content::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
        .map_err(|refusal| refusal.at(self.position))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        visitor.visit_newtype_struct(self).map_err(|refusal| refusal.at(self.position))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        let found = match &self.content {
            Content::Text(text) => visitor.visit_enum(text.as_ref().into_deserializer()),
            Content::Map(entries) => match entries.as_slice() {
                [entry] => visitor.visit_enum(Variant(entry)),
                _ => Err(Refusal::custom("a map with exactly one field should be here")),
            },
            _ => Err(Refusal::invalid_type(self.unexpected(), &"one of the known words")),
        };
        found.map_err(|refusal| refusal.at(self.position))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl Node<'_> {
    fn unexpected(&self) -> Unexpected<'_> {
        match &self.content {
            Content::Null => Unexpected::Unit,
            Content::Bool(value) => Unexpected::Bool(*value),
            Content::Int(value) => i64::try_from(*value)
                .map_or(Unexpected::Other("a large number"), Unexpected::Signed),
            Content::Float(value) => Unexpected::Float(*value),
            Content::Text(text) => Unexpected::Str(text),
            Content::List(_) => Unexpected::Seq,
            Content::Map(_) => Unexpected::Map,
        }
    }
}

struct Items<'de, 'a>(std::slice::Iter<'de, Node<'a>>);

impl<'de> SeqAccess<'de> for Items<'de, '_> {
    type Error = Refusal;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Refusal> {
        let Some(node) = self.0.next() else { return Ok(None) };
        seed.deserialize(node).map(Some).map_err(|refusal| refusal.at(node.position))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

struct Entries<'de, 'a> {
    rest: std::slice::Iter<'de, Entry<'a>>,
    value: Option<&'de Node<'a>>,
}

impl<'de> MapAccess<'de> for Entries<'de, '_> {
    type Error = Refusal;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Refusal> {
        let Some(entry) = self.rest.next() else { return Ok(None) };
        self.value = Some(&entry.value);
        let key: &str = &entry.key;
        seed.deserialize(key.into_deserializer())
            .map(Some)
            .map_err(|refusal: Refusal| refusal.at(entry.position))
    }

    fn next_value_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<T::Value, Refusal> {
        let node = self.value.take().expect("serde asks for a value after its key");
        seed.deserialize(node).map_err(|refusal| refusal.at(node.position))
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }
}

/// `name: content` where one of several kinds is meant.
struct Variant<'de, 'a>(&'de Entry<'a>);

impl<'de, 'a> EnumAccess<'de> for Variant<'de, 'a> {
    type Error = Refusal;
    type Variant = &'de Node<'a>;

    fn variant_seed<V: DeserializeSeed<'de>>(
        self,
        seed: V,
    ) -> Result<(V::Value, Self::Variant), Refusal> {
        let key: &str = &self.0.key;
        let kind = seed
            .deserialize(key.into_deserializer())
            .map_err(|refusal: Refusal| refusal.at(self.0.position))?;
        Ok((kind, &self.0.value))
    }
}

impl<'de> VariantAccess<'de> for &'de Node<'_> {
    type Error = Refusal;

    fn unit_variant(self) -> Result<(), Refusal> {
        match self.content {
            Content::Null => Ok(()),
            _ => Err(Refusal::custom("this kind takes no fields").at(self.position)),
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Refusal> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Refusal> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        self.deserialize_any(visitor)
    }
}
