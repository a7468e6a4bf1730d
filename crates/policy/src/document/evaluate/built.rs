//! The patterns of all policies, and of the schemas of tools, that are built, bounded together.
//!
//! Policies are many and come from anybody, so what is built of their patterns is not theirs to keep: beyond a bound
//! something goes, and is built again when it is asked again. It goes from the policy or schema that has the most, so that
//! one which is small stays built whatever others ask, and there what was not asked for the longest time. What belongs to a
//! policy that is gone goes with it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
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

static ALL: Mutex<All> = Mutex::new(All::NOTHING);

/// Moves on whenever something is built.
static NOW: AtomicU64 = AtomicU64::new(0);

/// A policy or schema: each is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Owner(u64);

impl Default for Owner {
    fn default() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The place of one pattern.
#[derive(Debug, Default)]
pub(super) struct Slot {
    owner: Owner,
    place: Arc<Place>,
}

#[derive(Debug, Default)]
struct Place {
    content: Mutex<Content>,
    /// When, by [`NOW`].
    asked: AtomicU64,
}

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
    built: BTreeMap<u64, Built>,
    /// Of whoever has something.
    owners: BTreeMap<Owner, u64>,
}

struct Built {
    owner: Owner,
    place: Weak<Place>,
    bytes: u64,
}

impl Slot {
    pub(super) fn of(owner: Owner) -> Self {
        Self { owner, place: Arc::default() }
    }

    /// Built now, unless it is already. `None` where it cannot be.
    pub(super) fn get(&self, pattern: &str, bytes: u64) -> Option<Arc<Automaton>> {
        let mut content = lock(&self.place.content);
        self.place.asked.store(NOW.load(Ordering::Relaxed), Ordering::Relaxed);
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
        let built = Built { owner: self.owner, place: Arc::downgrade(&self.place), bytes };
        let (number, evicted) = lock(&ALL).add(built, MAX_BYTES);
        // Whoever built something later may be here first.
        NOW.fetch_max(number, Ordering::Relaxed);
        *content = Content::Built { automaton: Arc::clone(&automaton), number };
        drop(content);
        // After both locks: the others are busy with places of their own.
        for (number, built) in evicted {
            empty(&built.place, number);
        }
        Some(automaton)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if let Content::Built { number, .. } = *lock(&self.place.content) {
            lock(&ALL).remove(number);
        }
    }
}

/// Unless it was built again meanwhile.
fn empty(place: &Weak<Place>, gone: u64) {
    if let Some(place) = place.upgrade() {
        let mut content = lock(&place.content);
        if matches!(*content, Content::Built { number, .. } if number == gone) {
            *content = Content::Nothing;
        }
    }
}

impl All {
    const NOTHING: Self =
        Self { next: 1, bytes: 0, built: BTreeMap::new(), owners: BTreeMap::new() };

    /// The number of what was added, and what has to go for it.
    fn add(&mut self, built: Built, most: u64) -> (u64, Vec<(u64, Built)>) {
        let mut evicted = Vec::new();
        while self.bytes.saturating_add(built.bytes) > most
            && let Some(number) = self.least_wanted()
            && let Some(gone) = self.remove(number)
        {
            evicted.push((number, gone));
        }
        let number = self.next;
        self.next += 1;
        self.bytes += built.bytes;
        *self.owners.entry(built.owner).or_default() += built.bytes;
        self.built.insert(number, built);
        (number, evicted)
    }

    /// Of whoever has the most, what was not asked for the longest time. Looking takes less than building does.
    fn least_wanted(&self) -> Option<u64> {
        // Among equals the first, so the one that is there for the longest time.
        let (most, _) = self.owners.iter().rev().max_by_key(|(_, bytes)| **bytes)?;
        let of_most = self.built.iter().filter(|(_, built)| built.owner == *most);
        of_most.min_by_key(|(_, built)| built.asked()).map(|(number, _)| *number)
    }

    fn remove(&mut self, number: u64) -> Option<Built> {
        let built = self.built.remove(&number)?;
        self.bytes -= built.bytes;
        let left = self.owners.get_mut(&built.owner)?;
        *left -= built.bytes;
        if *left == 0 {
            self.owners.remove(&built.owner);
        }
        Some(built)
    }
}

impl Built {
    fn asked(&self) -> u64 {
        self.place.upgrade().map_or(0, |place| place.asked.load(Ordering::Relaxed))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever fills all the room does it alone.
    static FILLING: Mutex<()> = Mutex::new(());

    fn is_built(slot: &Slot) -> bool {
        matches!(*lock(&slot.place.content), Content::Built { .. })
    }

    #[test]
    fn the_oldest_goes_and_is_built_again() {
        let _alone = lock(&FILLING);
        let slots: Vec<Slot> = (0..3).map(|_| Slot::default()).collect();
        for slot in &slots {
            assert!(slot.get("a+x", MAX_BYTES / 2).unwrap().occurs_in("aax"));
        }
        // Other tests build patterns too, so more may be gone than these alone would say.
        assert!(!is_built(&slots[0]));
        assert!(lock(&ALL).bytes <= MAX_BYTES);
        assert!(slots[0].get("a+x", 1).unwrap().occurs_in("aax"), "built again");
    }

    const NONE: [u64; 0] = [];

    /// Adds something; tells what went for it.
    fn add(all: &mut All, owner: Owner, place: &Arc<Place>, bytes: u64) -> Vec<u64> {
        let (_, evicted) = all.add(Built { owner, place: Arc::downgrade(place), bytes }, 100);
        evicted.into_iter().map(|(number, _)| number).collect()
    }

    #[test]
    fn what_fits_stays_and_goes_with_its_policy() {
        let (mut all, owner, place) = (All::NOTHING, Owner::default(), Arc::default());
        for _ in 0..4 {
            assert_eq!(add(&mut all, owner, &place, 25), NONE);
        }
        all.remove(2);
        assert_eq!(all.bytes, 75);
        assert_eq!(add(&mut all, owner, &place, 25), NONE);
        assert_eq!(add(&mut all, owner, &place, 50), [1, 3]);
        all.remove(1);
        assert_eq!(all.bytes, 100);
        // What is too large for all has the place to itself.
        assert_eq!(add(&mut all, owner, &place, 200), [4, 5, 6]);
        all.remove(7);
        assert_eq!((all.bytes, all.owners.len()), (0, 0));
    }

    #[test]
    fn who_has_the_most_gives_up() {
        let (mut all, place) = (All::NOTHING, Arc::default());
        let (small, large, other) = (Owner::default(), Owner::default(), Owner::default());
        assert_eq!(add(&mut all, small, &place, 20), NONE);
        for _ in 0..4 {
            assert_eq!(add(&mut all, large, &place, 20), NONE);
        }
        // The oldest of all stays, whoever asks for more.
        assert_eq!(add(&mut all, large, &place, 20), [2]);
        assert_eq!(add(&mut all, other, &place, 40), [3, 4]);
        assert_eq!(add(&mut all, other, &place, 20), [5]);
        assert_eq!(all.owners[&small], 20);
    }

    #[test]
    fn what_is_asked_stays() {
        let (mut all, owner) = (All::NOTHING, Owner::default());
        let places: Vec<Arc<Place>> = (1..=4).map(|_| Arc::default()).collect();
        for place in &places {
            assert_eq!(add(&mut all, owner, place, 25), NONE);
        }
        places[0].asked.store(2, Ordering::Relaxed);
        places[1].asked.store(1, Ordering::Relaxed);
        places[2].asked.store(3, Ordering::Relaxed);
        assert_eq!(add(&mut all, owner, &Arc::default(), 50), [4, 2]);
    }

    #[test]
    fn a_small_policy_stays_built_while_others_take_turns() {
        let _alone = lock(&FILLING);
        let small = Slot::default();
        assert!(small.get("s+x", 1 << 20).unwrap().occurs_in("ssx"));
        let others: Vec<Slot> = (0..3).map(|_| Slot::default()).collect();
        for slot in others.iter().chain(&others) {
            assert!(slot.get("a+x", MAX_BYTES / 2).unwrap().occurs_in("aax"));
            assert!(is_built(&small));
        }
        drop(others);
        // Of one policy, what is asked stays.
        let owner = Owner::default();
        let slots: Vec<Slot> = (0..5).map(|_| Slot::of(owner)).collect();
        for slot in &slots {
            assert!(slot.get("a+x", MAX_BYTES / 4).unwrap().occurs_in("aax"));
            assert!(slots[0].get("a+x", MAX_BYTES / 4).is_some());
            assert!(is_built(&slots[0]));
        }
        assert!(!is_built(&slots[1]));
    }

    #[test]
    fn what_cannot_be_built_is_not_tried_again() {
        let slot = Slot::default();
        assert!(slot.get("(", 1).is_none());
        assert!(slot.get("a", 1).is_none());
    }
}
