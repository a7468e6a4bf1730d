//! The system calls that a workload may make.
//!
//! Two tables with a reason per entry ([`allowed`], [`refused`]) are compiled into one program. What is refused
//! answers `EPERM`; what is in neither table answers `ENOSYS`, so that programs fall back as on an older kernel. Calls
//! that enter by the 32-bit gate end the process; the x32 numbers are in neither table.
//!
//! The kernel checks and translates a program whenever it is installed, which takes longer than anything else on the way
//! to a command. So the agent goes behind [`shared`], once, and commands inherit it; what the agent needs and a workload
//! must not have is taken away by [`own`], a few instructions long, when a command starts.

mod allowed;
mod compile;
mod names;
mod profile;
mod refused;

use std::sync::OnceLock;

pub use profile::profile;

/// When an entry applies.
#[derive(Clone, Copy, Debug)]
pub enum When {
    Always,
    /// This bit of the argument's low half is set.
    Flag {
        index: u8,
        flag: u32,
    },
    /// The low 32 bits of each argument equal the value.
    Equal(&'static [(u8, u64)]),
    /// The low 32 bits of each argument equal the values of the first list and none of the second.
    Except(&'static [(u8, u64)], &'static [(u8, u64)]),
}

/// Flags of `clone` and `unshare` that make a namespace.
const NAMESPACES: [u32; 8] = [
    0x0000_0080, // time; in `clone` this byte is the exit signal
    0x0002_0000, // mount
    0x0200_0000, // cgroup
    0x0400_0000, // uts
    0x0800_0000, // ipc
    0x1000_0000, // user
    0x2000_0000, // pid
    0x4000_0000, // net
];

/// A system call, when it is meant, and why.
pub type Entry = (i64, When, &'static str);

/// What only the agent may call.
const AGENT: &[Entry] = &[(
    libc::SYS_clone3,
    When::Always,
    "starts commands in cgroups; its flags cannot be looked at",
)];

/// The program for the agent and everything that it starts, as an array of the kernel's 8-byte instructions. Compiled
/// once.
#[must_use]
pub fn shared() -> &'static [u8] {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    PROGRAM.get_or_init(|| compile::compile(&with_agent(allowed::TABLE), refused::TABLE))
}

/// The program for everything that the agent starts, besides [`shared`].
#[must_use]
pub fn own() -> &'static [u8] {
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    PROGRAM.get_or_init(|| compile::take_away(AGENT))
}

fn with_agent(table: &[Entry]) -> Vec<Entry> {
    table.iter().chain(AGENT).copied().collect()
}

/// The shared program for where the CPU limit is an affinity mask: it keeps the workload on the CPUs it was given.
#[must_use]
pub fn keep_affinity() -> &'static [u8] {
    const TABLE: &[Entry] =
        &[(libc::SYS_sched_setaffinity, When::Always, "the CPU limit is an affinity mask")];
    static PROGRAM: OnceLock<Vec<u8>> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let refused: Vec<Entry> = refused::TABLE.iter().chain(TABLE).copied().collect();
        compile::compile(&with_agent(allowed::TABLE), &refused)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_both_allowed_without_condition_and_refused_without_condition() {
        for (number, when, reason) in refused::TABLE {
            let clash = allowed::TABLE.iter().any(|(other, allowed, _)| {
                other == number && matches!((when, allowed), (When::Always, When::Always))
            });
            assert!(!clash, "{number}: {reason}");
        }
    }

    #[test]
    fn what_only_the_agent_may_call_is_in_neither_table() {
        for (number, ..) in AGENT {
            let known = allowed::TABLE.iter().chain(refused::TABLE);
            assert!(known.into_iter().all(|(other, ..)| other != number), "{number}");
        }
    }

    #[test]
    fn every_entry_has_a_reason() {
        for (number, _, reason) in allowed::TABLE.iter().chain(refused::TABLE).chain(AGENT) {
            assert!(reason.len() > 4, "{number}");
        }
    }
}
