//! Lists whose items are judged as they are read, so that a refusal has the place of the item.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, SeqAccess, Visitor};

use crate::Invalid;
use crate::document::Looks;

/// What types alone cannot say about a part of a document.
pub(crate) trait Check {
    /// What it takes to look at patterns comes out of `looks`, which is for the whole list.
    fn check(&self, looks: &mut Looks) -> Result<(), Invalid>;
}

/// For `#[serde(deserialize_with)]` on a list.
pub(crate) fn checked_list<'de, D: Deserializer<'de>, T: Deserialize<'de> + Check>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_seq(Items(PhantomData))
}

struct Items<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de> + Check> Visitor<'de> for Items<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let (mut list, mut looks) = (Vec::new(), Looks::default());
        while let Some(item) = items.next_element_seed(Item(&mut looks, PhantomData))? {
            list.push(item);
        }
        Ok(list)
    }
}

struct Item<'l, T>(&'l mut Looks, PhantomData<T>);

impl<'de, T: Deserialize<'de> + Check> DeserializeSeed<'de> for Item<'_, T> {
    type Value = T;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        let item = T::deserialize(deserializer)?;
        item.check(self.0).map_err(D::Error::custom)?;
        Ok(item)
    }
}
