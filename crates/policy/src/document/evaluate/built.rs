//! The patterns of all policies, and of the schemas of tools, that are built, bounded together.
//!
//! Policies are many and come from anybody, so what is built of their patterns is not theirs to keep: beyond a bound the
//! pattern that was built first goes, and is built again when it is asked again. What belongs to a policy that is gone goes
//! with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use regex::{Regex, RegexBuilder};

use super::pattern::MAX_NESTING_AS_WRITTEN;

/// What all that is built may take, as [`super::Pattern::bytes`] counts it.
const MAX_BYTES: u64 = 256 << 20;

/// The program of a pattern of the greatest cost stays below with room to spare.
const MAX_PROGRAM: usize = 16 << 20;
/// Room to match in, for each who asks at the same time.
const MAX_MATCHING: usize = 512 << 10;

static ALL: Mutex<All> = Mutex::new(All { next: 0, bytes: 0, built: BTreeMap::new() });

/// The place of one pattern.
#[derive(Debug, Default)]
pub(super) struct Slot(Arc<Place>);

type Place = Mutex<Content>;

#[derive(Debug, Default)]
enum Content {
    #[default]
    Nothing,
    Built {
        regex: Arc<Regex>,
        /// Among all that are built.
        number: u64,
    },
    CannotBeBuilt,
}

struct All {
    next: u64,
    bytes: u64,
    built: BTreeMap<u64, (Weak<Place>, u64)>,
}

impl Slot {
    /// Built now, unless it is already. `None` where it cannot be.
    pub(super) fn get(&self, pattern: &str, bytes: u64) -> Option<Arc<Regex>> {
        let mut content = lock(&self.0);
        match &*content {
            Content::Built { regex, .. } => return Some(Arc::clone(regex)),
            Content::CannotBeBuilt => return None,
            Content::Nothing => {}
        }
        let Ok(regex) = RegexBuilder::new(pattern)
            .size_limit(MAX_PROGRAM)
            .dfa_size_limit(MAX_MATCHING)
            .nest_limit(MAX_NESTING_AS_WRITTEN)
            .build()
        else {
            *content = Content::CannotBeBuilt;
            return None;
        };
        let regex = Arc::new(regex);
        let (number, evicted) = lock(&ALL).add(Arc::downgrade(&self.0), bytes, MAX_BYTES);
        *content = Content::Built { regex: Arc::clone(&regex), number };
        drop(content);
        // After both locks: the others are busy with places of their own.
        for (place, number) in evicted {
            empty(&place, number);
        }
        Some(regex)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Content::Built { number, .. } = *lock(&self.0) {
            lock(&ALL).remove(number);
        }
    }
}

/// Unless it was built again meanwhile.
fn empty(place: &Weak<Place>, gone: u64) {
    if let Some(place) = place.upgrade() {
        let mut content = lock(&place);
        if matches!(*content, Content::Built { number, .. } if number == gone) {
            *content = Content::Nothing;
        }
    }
}

impl All {
    /// The number of what was added, and what has to go for it.
    fn add(&mut self, place: Weak<Place>, bytes: u64, most: u64) -> (u64, Vec<(Weak<Place>, u64)>) {
        let mut evicted = Vec::new();
        while self.bytes.saturating_add(bytes) > most
            && let Some((number, (place, bytes))) = self.built.pop_first()
        {
            self.bytes -= bytes;
            evicted.push((place, number));
        }
        let number = self.next;
        self.next += 1;
        self.bytes += bytes;
        self.built.insert(number, (place, bytes));
        (number, evicted)
    }

    fn remove(&mut self, number: u64) {
        if let Some((_, bytes)) = self.built.remove(&number) {
            self.bytes -= bytes;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_built(slot: &Slot) -> bool {
        matches!(*lock(&slot.0), Content::Built { .. })
    }

    #[test]
    fn the_oldest_goes_and_is_built_again() {
        let slots: Vec<Slot> = (0..3).map(|_| Slot::default()).collect();
        for slot in &slots {
            assert!(slot.get("a+x", MAX_BYTES / 2).unwrap().is_match("aax"));
        }
        // Other tests build patterns too, so more may be gone than these alone would say.
        assert!(!is_built(&slots[0]));
        assert!(lock(&ALL).bytes <= MAX_BYTES);
        assert!(slots[0].get("a+x", 1).unwrap().is_match("aax"), "built again");
    }

    #[test]
    fn what_fits_stays_and_goes_with_its_policy() {
        let mut all = All { next: 0, bytes: 0, built: BTreeMap::new() };
        let place = Weak::new;
        let numbers = |evicted: Vec<(Weak<Place>, u64)>| -> Vec<u64> {
            evicted.into_iter().map(|(_, number)| number).collect()
        };
        for expected in 0..4 {
            let (number, evicted) = all.add(place(), 25, 100);
            assert_eq!((number, numbers(evicted)), (expected, vec![]));
        }
        all.remove(1);
        assert_eq!(all.bytes, 75);
        assert_eq!(numbers(all.add(place(), 25, 100).1), Vec::<u64>::new());
        assert_eq!(numbers(all.add(place(), 50, 100).1), [0, 2]);
        all.remove(0);
        assert_eq!(all.bytes, 100);
        // What is too large for all has the place to itself.
        assert_eq!(numbers(all.add(place(), 200, 100).1), [3, 4, 5]);
    }

    #[test]
    fn what_cannot_be_built_is_not_tried_again() {
        let slot = Slot::default();
        assert!(slot.get("(", 1).is_none());
        assert!(slot.get("a", 1).is_none());
    }
}
