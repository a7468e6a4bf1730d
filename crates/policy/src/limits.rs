//! How much of the machine a sandbox may use.
//!
//! Sizes are in powers of 1024 whatever the unit is called (`m`, `mb`, `MiB`), as container tools have it. Every limit
//! has a least and a greatest sensible value; what lies outside is refused rather than bent into range.

mod format;
mod parse;

pub use format::{format_bytes, format_cpus, format_duration};
pub use parse::{parse_cpus, parse_disk, parse_memory, parse_pids, parse_timeout};

use serde::{Deserialize, Serialize};
use std::time::Duration;

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;
pub(crate) const TIB: u64 = 1 << 40;

/// How long a command may run unless the caller says otherwise.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

const DEFAULT_MEMORY: u64 = 512 * MIB;
const DEFAULT_CPU_MILLIS: u32 = 1000;
const DEFAULT_PIDS: u32 = 256;
const DEFAULT_DISK: u64 = GIB;

/// One inode for each 16 KiB of disk, as file systems themselves assume: many small files fit, and a flood of empty
/// ones ends.
const BYTES_PER_INODE: u64 = 16 * KIB;
/// A small disk still holds a small project's files.
const MIN_INODES: u64 = 1024;

/// A limit together with who wanted it. What a caller asked for is enforced fully or refused; a default that nobody
/// asked for may fall to the next best mechanism.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked<T> {
    pub value: T,
    pub asked: bool,
}

impl<T> Asked<T> {
    /// A value that the caller or a policy named.
    #[must_use]
    pub const fn by_caller(value: T) -> Self {
        Self { value, asked: true }
    }

    /// A value that nobody named.
    #[must_use]
    pub const fn by_default(value: T) -> Self {
        Self { value, asked: false }
    }
}

/// Limits of one sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    pub memory_bytes: Asked<u64>,
    /// Thousandths of a CPU.
    pub cpu_millis: Asked<u32>,
    pub pids: Asked<u32>,
    pub disk_bytes: Asked<u64>,
    pub disk_inodes: Asked<u64>,
}

impl Limits {
    /// Sets the disk limit and the number of inodes that goes with it; nobody asked for that number as such.
    #[must_use]
    pub fn with_disk(mut self, bytes: u64) -> Self {
        self.disk_bytes = Asked::by_caller(bytes);
        self.disk_inodes = Asked::by_default(inodes_for(bytes));
        self
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: Asked::by_default(DEFAULT_MEMORY),
            cpu_millis: Asked::by_default(DEFAULT_CPU_MILLIS),
            pids: Asked::by_default(DEFAULT_PIDS),
            disk_bytes: Asked::by_default(DEFAULT_DISK),
            disk_inodes: Asked::by_default(inodes_for(DEFAULT_DISK)),
        }
    }
}

fn inodes_for(disk_bytes: u64) -> u64 {
    (disk_bytes / BYTES_PER_INODE).max(MIN_INODES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_documents_and_nobody_asked() {
        let limits = Limits::default();
        assert_eq!(limits.memory_bytes, Asked { value: 536_870_912, asked: false });
        assert_eq!(limits.cpu_millis, Asked { value: 1000, asked: false });
        assert_eq!(limits.pids, Asked { value: 256, asked: false });
        assert_eq!(limits.disk_bytes, Asked { value: 1_073_741_824, asked: false });
        assert_eq!(limits.disk_inodes, Asked { value: 65_536, asked: false });
    }

    #[test]
    fn inodes_follow_the_disk() {
        let limits = Limits::default().with_disk(16 * GIB);
        assert_eq!(limits.disk_bytes, Asked::by_caller(16 * GIB));
        assert_eq!(limits.disk_inodes, Asked::by_default(1 << 20));
        assert_eq!(Limits::default().with_disk(4 * MIB).disk_inodes.value, MIN_INODES);
    }
}
