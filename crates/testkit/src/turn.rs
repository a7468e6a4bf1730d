//! Turns on the machine: most tests share it, a few must be alone.
//!
//! Tests that measure time or share of the processor, and tests that compare the whole machine before and after, take
//! the machine for themselves. The turn is a lock on a file, so it holds across test processes.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;

const FILE: &str = "/tmp/belljar-test.lock";

/// A turn, held until dropped.
#[derive(Debug)]
pub struct Turn(#[allow(dead_code, reason = "the lock lives as long as the file is open")] File);

impl Turn {
    /// Waits until nobody is alone on the machine.
    #[must_use]
    pub fn shared() -> Self {
        let file = open();
        file.lock_shared().expect("a lock on an open file");
        Self(file)
    }

    /// Waits until nobody else has a turn.
    #[must_use]
    pub fn alone() -> Self {
        let file = open();
        file.lock().expect("a lock on an open file");
        Self(file)
    }
}

fn open() -> File {
    // Everybody may open it: tests of several users take turns with each other.
    OpenOptions::new()
        .read(true)
        .open(FILE)
        .or_else(|_| {
            OpenOptions::new().write(true).create(true).truncate(false).mode(0o666).open(FILE)
        })
        .expect("/tmp is writable")
}
