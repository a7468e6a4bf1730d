//! Bytes that are nearly always text, as text: what is not UTF-8 becomes the replacement character.

use prost::bytes::Bytes;
use serde::{Deserialize, Deserializer, Serializer};

pub(crate) fn one<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(bytes))
}

pub(crate) fn read_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    String::deserialize(deserializer).map(Bytes::from)
}
