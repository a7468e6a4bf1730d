//! A load that knows what must come out of it.
//!
//! A [`Worker`] makes sandboxes, runs writers whose every byte is known beforehand, moves files and destroys, in an
//! order that its seed decides. It notes before each request what it wants, and after the answer what was confirmed;
//! so after a server died at any moment, [`Worker::resolve`] asks again for what has no answer yet, and
//! [`Worker::verify`] compares everything that was confirmed with what the server has.

mod check;
mod work;
mod writer;

use std::collections::BTreeMap;

pub use work::is_broken;
pub use writer::Writer;

/// Sandboxes that a worker has at a time.
const MAX_SANDBOXES: usize = 3;

/// Processes that run at a time in one sandbox.
const MAX_RUNNING: usize = 4;

/// One client of a server, with a memory.
#[derive(Debug)]
pub struct Worker {
    index: usize,
    random: fastrand::Rng,
    made: u64,
    /// By name.
    sandboxes: BTreeMap<String, Owned>,
    pub counts: Counts,
}

/// What was done.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub created: u64,
    pub destroyed: u64,
    pub processes: u64,
    pub streamed: u64,
    pub files: u64,
    pub verified_bytes: u64,
}

/// A sandbox that is wanted, or no longer.
#[derive(Debug)]
struct Owned {
    /// Unknown until the server confirmed it.
    id: Option<String>,
    leaving: bool,
    tasks: Vec<Task>,
}

/// A process that is wanted.
#[derive(Debug)]
struct Task {
    key: String,
    writer: Writer,
    id: Option<String>,
    /// The server has said that it runs, before anything died.
    confirmed: bool,
    /// Its whole log was compared.
    verified: bool,
}

impl Worker {
    #[must_use]
    pub fn new(seed: u64, index: usize) -> Self {
        let random = fastrand::Rng::with_seed(seed.wrapping_mul(31).wrapping_add(index as u64));
        Self { index, random, made: 0, sandboxes: BTreeMap::new(), counts: Counts::default() }
    }

    fn next_name(&mut self) -> String {
        self.made += 1;
        format!("w{}-{}", self.index, self.made)
    }

    /// One of its sandboxes that stay.
    fn pick(&mut self) -> Option<String> {
        let staying = self.sandboxes.iter().filter(|(_, owned)| !owned.leaving);
        let names: Vec<&String> = staying.map(|(name, _)| name).collect();
        let chosen = self.random.usize(..names.len().max(1));
        names.get(chosen).map(|name| (*name).clone())
    }
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.created += other.created;
        self.destroyed += other.destroyed;
        self.processes += other.processes;
        self.streamed += other.streamed;
        self.files += other.files;
        self.verified_bytes += other.verified_bytes;
    }
}
