//! A small map from numbers to things: sorted, searched by halves.
//!
//! Stands in for the standard map because one copy of that per type would take a tenth of the agent's size. Things are
//! boxed, so moving them about is cheap; tables here have at most some thousand entries.

#[derive(Debug)]
pub(crate) struct Table<K, V> {
    entries: Vec<(K, Box<V>)>,
}

impl<K, V> Default for Table<K, V> {
    fn default() -> Self {
        Self { entries: Vec::new() }
    }
}

impl<K: Ord + Copy, V> Table<K, V> {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        let value = Box::new(value);
        match self.position(key) {
            Ok(index) => self.entries[index].1 = value,
            Err(index) => self.entries.insert(index, (key, value)),
        }
    }

    pub(crate) fn remove(&mut self, key: K) -> Option<V> {
        let index = self.position(key).ok()?;
        Some(*self.entries.remove(index).1)
    }

    pub(crate) fn get(&self, key: K) -> Option<&V> {
        let index = self.position(key).ok()?;
        self.entries.get(index).map(|(_, value)| &**value)
    }

    pub(crate) fn get_mut(&mut self, key: K) -> Option<&mut V> {
        let index = self.position(key).ok()?;
        self.entries.get_mut(index).map(|(_, value)| &mut **value)
    }

    pub(crate) fn keys(&self) -> Vec<K> {
        self.entries.iter().map(|(key, _)| *key).collect()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, &V)> {
        self.entries.iter().map(|(key, value)| (*key, &**value))
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (K, &mut V)> {
        self.entries.iter_mut().map(|(key, value)| (*key, &mut **value))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }

    fn position(&self, key: K) -> Result<usize, usize> {
        self.entries.binary_search_by(|(known, _)| known.cmp(&key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_one_value_per_key_in_order() {
        let mut table = Table::default();
        for key in [5, 1, 3, 1] {
            table.insert(key, key * 10 + table.len() as i32);
        }
        assert_eq!(table.iter().collect::<Vec<_>>(), [(1, &13), (3, &32), (5, &50)]);
        assert_eq!(table.remove(3), Some(32));
        assert_eq!((table.remove(3), table.get(5)), (None, Some(&50)));
        assert_eq!(table.get_mut(2), None);
        assert_eq!(table.keys(), [1, 5]);
    }
}
