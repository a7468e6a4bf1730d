//! Enums as lower-case words. A number that no word stands for is written as `unspecified`; a word that is not known
//! is an error that names those that are.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

fn known<E: TryFrom<i32> + Default>(number: i32) -> E {
    E::try_from(number).unwrap_or_default()
}

pub(crate) fn one<E, S>(number: &i32, serializer: S) -> Result<S::Ok, S::Error>
where
    E: TryFrom<i32> + Default + Serialize,
    S: Serializer,
{
    known::<E>(*number).serialize(serializer)
}

pub(crate) fn maybe<E, S>(number: &Option<i32>, serializer: S) -> Result<S::Ok, S::Error>
where
    E: TryFrom<i32> + Default + Serialize,
    S: Serializer,
{
    number.map(known::<E>).serialize(serializer)
}

pub(crate) fn many<E, S>(numbers: &[i32], serializer: S) -> Result<S::Ok, S::Error>
where
    E: TryFrom<i32> + Default + Serialize,
    S: Serializer,
{
    serializer.collect_seq(numbers.iter().map(|number| known::<E>(*number)))
}

pub(crate) fn read_one<'de, E, D>(deserializer: D) -> Result<i32, D::Error>
where
    E: Into<i32> + Deserialize<'de>,
    D: Deserializer<'de>,
{
    E::deserialize(deserializer).map(Into::into)
}

pub(crate) fn read_maybe<'de, E, D>(deserializer: D) -> Result<Option<i32>, D::Error>
where
    E: Into<i32> + Deserialize<'de>,
    D: Deserializer<'de>,
{
    Option::<E>::deserialize(deserializer).map(|word| word.map(Into::into))
}

pub(crate) fn read_many<'de, E, D>(deserializer: D) -> Result<Vec<i32>, D::Error>
where
    E: Into<i32> + DeserializeOwned,
    D: Deserializer<'de>,
{
    Vec::<E>::deserialize(deserializer).map(|words| words.into_iter().map(Into::into).collect())
}
