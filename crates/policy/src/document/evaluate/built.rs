//! The patterns of all policies, and of the schemas of tools, that are built, bounded together.
//!
//! Policies are many and come from anybody, so what is built of their patterns is not theirs to keep: beyond a bound the
//! pattern that was built first goes, and is built again when it is asked again. What belongs to a policy that is gone goes
//! with it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use regex_automata::Input;
use regex_automata::meta::{Builder, Cache, Config, Regex};
use regex_automata::nfa::thompson::WhichCaptures;
use regex_automata::util::syntax;

use super::pattern::MAX_NESTING_AS_WRITTEN;

/// What all that is built may take, as [`super::Pattern::bytes`] counts it.
const MAX_BYTES: u64 = 256 << 20;

/// The program of a pattern of the greatest cost stays below with room to spare.
const MAX_PROGRAM: usize = 16 << 20;
/// Room to match in while somebody asks.
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
        automaton: Arc<Automaton>,
        /// Among all that are built.
        number: u64,
    },
    CannotBeBuilt,
}

/// A pattern that is built, and what was found out by matching, which makes the next answer quicker.
#[derive(Debug)]
pub(super) struct Automaton {
    regex: Regex,
    room: Mutex<Option<Cache>>,
    /// What both may take while nobody asks.
    bytes: usize,
}

impl Automaton {
    fn new(pattern: &str, bytes: u64) -> Option<Self> {
        let config = Config::new()
            .nfa_size_limit(Some(MAX_PROGRAM))
            .hybrid_cache_capacity(MAX_MATCHING)
            // Only whether it matches is asked, so groups are not followed.
            .which_captures(WhichCaptures::Implicit)
            .onepass(false);
        let syntax = syntax::Config::new().nest_limit(MAX_NESTING_AS_WRITTEN);
        let regex = Builder::new().configure(config).syntax(syntax).build(pattern).ok()?;
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        Some(Self { regex, room: Mutex::default(), bytes })
    }

    /// Each who asks at the same time has room of its own. One of them is kept, unless it has become too large: texts come
    /// from anybody, and so many patterns were let in because each takes what was counted.
    pub(super) fn occurs_in(&self, text: &str) -> bool {
        let kept = lock(&self.room).take();
        let mut room = kept.unwrap_or_else(|| self.regex.create_cache());
        let found = self.regex.search_half_with(&mut room, &Input::new(text).earliest(true));
        if self.regex.memory_usage() + room.memory_usage() <= self.bytes {
            *lock(&self.room) = Some(room);
        }
        found.is_some()
    }
}

struct All {
    next: u64,
    bytes: u64,
    built: BTreeMap<u64, (Weak<Place>, u64)>,
}

impl Slot {
    /// Built now, unless it is already. `None` where it cannot be.
    pub(super) fn get(&self, pattern: &str, bytes: u64) -> Option<Arc<Automaton>> {
        let mut content = lock(&self.0);
        match &*content {
            Content::Built { automaton, .. } => return Some(Arc::clone(automaton)),
            Content::CannotBeBuilt => return None,
            Content::Nothing => {}
        }
        let Some(automaton) = Automaton::new(pattern, bytes) else {
            *content = Content::CannotBeBuilt;
            return None;
        };
        let automaton = Arc::new(automaton);
        let (number, evicted) = lock(&ALL).add(Arc::downgrade(&self.0), bytes, MAX_BYTES);
        *content = Content::Built { automaton: Arc::clone(&automaton), number };
        drop(content);
        // After both locks: the others are busy with places of their own.
        for (place, number) in evicted {
            empty(&place, number);
        }
        Some(automaton)
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
            assert!(slot.get("a+x", MAX_BYTES / 2).unwrap().occurs_in("aax"));
        }
        // Other tests build patterns too, so more may be gone than these alone would say.
        assert!(!is_built(&slots[0]));
        assert!(lock(&ALL).bytes <= MAX_BYTES);
        assert!(slots[0].get("a+x", 1).unwrap().occurs_in("aax"), "built again");
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
