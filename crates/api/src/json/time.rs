//! Times as RFC 3339.

use std::time::UNIX_EPOCH;

use prost_types::Timestamp;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub(crate) fn serialize<S: Serializer>(
    time: &Option<Timestamp>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    time.as_ref().map(super::rfc3339).serialize(serializer)
}

pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Timestamp>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let time = humantime::parse_rfc3339_weak(&text)
        .map_err(|error| D::Error::custom(format!("`{text}` is not an RFC 3339 time: {error}")))?;
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(Some(Timestamp {
        seconds: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(since.subsec_nanos()).unwrap_or(0),
    }))
}
