//! Lists whose items are judged as they are read, so that a refusal has the place of the item.

use serde::de::{Deserialize, Deserializer, Error};

use crate::Invalid;

/// What types alone cannot say about a part of a document.
pub(crate) trait Check {
    fn check(&self) -> Result<(), Invalid>;
}

/// For `#[serde(deserialize_with)]` on a list.
pub(crate) fn checked_list<'de, D: Deserializer<'de>, T: Deserialize<'de> + Check>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let items = Vec::<Checked<T>>::deserialize(deserializer)?;
    Ok(items.into_iter().map(|item| item.0).collect())
}

struct Checked<T>(T);

impl<'de, T: Deserialize<'de> + Check> Deserialize<'de> for Checked<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let item = T::deserialize(deserializer)?;
        item.check().map_err(D::Error::custom)?;
        Ok(Self(item))
    }
}
