//! Bytes as base64.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::bytes::Bytes;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn one<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&STANDARD.encode(bytes))
}

pub(crate) fn maybe<S: Serializer>(
    bytes: &Option<Bytes>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    bytes.as_ref().map(|bytes| STANDARD.encode(bytes)).serialize(serializer)
}

pub(crate) fn many<S: Serializer>(bytes: &[Bytes], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(bytes.iter().map(|bytes| STANDARD.encode(bytes)))
}

pub(crate) fn read_one<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    decode(&String::deserialize(deserializer)?)
}

pub(crate) fn read_maybe<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Bytes>, D::Error> {
    Option::<String>::deserialize(deserializer)?.as_deref().map(decode).transpose()
}

pub(crate) fn read_many<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Bytes>, D::Error> {
    Vec::<String>::deserialize(deserializer)?.iter().map(|text| decode(text)).collect()
}

fn decode<E: Error>(text: &str) -> Result<Bytes, E> {
    STANDARD
        .decode(text)
        .map(Bytes::from)
        .map_err(|error| E::custom(format!("not base64: {error}")))
}
