//! The system calls that a workload may make.
//!
//! Two tables with a reason per entry ([`allowed`], [`refused`]) are compiled into two programs. The first allows
//! what is listed and answers `ENOSYS` to everything else, so that programs fall back as on an older kernel; the
//! second answers `EPERM` to what is refused on purpose. When both object, the kernel takes the answer of the one
//! installed last. Calls that enter by the 32-bit gate end the process; the x32 numbers are in neither table.

mod allowed;
mod refused;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch,
};

/// When an entry applies.
#[derive(Clone, Copy, Debug)]
pub enum When {
    Always,
    /// Argument `index`, masked, equals `value` (all 64 bits).
    Masked { index: u8, mask: u64, value: u64 },
    /// The low 32 bits of each argument equal the value.
    Equal(&'static [(u8, u64)]),
    /// The low 32 bits of each argument equal the values of the first list and none of the second.
    Except(&'static [(u8, u64)], &'static [(u8, u64)]),
}

/// Flags of `clone` and `unshare` that make a namespace.
const NAMESPACES: [u64; 8] = [
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

const ENOSYS: u32 = 38;
const EPERM: u32 = 1;

/// The compiled programs, in the order of installation, as arrays of the kernel's 8-byte instructions.
#[must_use]
pub fn programs() -> &'static [Vec<u8>] {
    static PROGRAMS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        vec![
            compile(allowed::TABLE, SeccompAction::Errno(ENOSYS), SeccompAction::Allow),
            compile(refused::TABLE, SeccompAction::Allow, SeccompAction::Errno(EPERM)),
        ]
    })
}

/// The program that keeps a workload on the CPUs it was given, where nothing else does.
#[must_use]
pub fn keep_affinity() -> Vec<u8> {
    const TABLE: &[Entry] =
        &[(libc::SYS_sched_setaffinity, When::Always, "the CPU limit is an affinity mask")];
    compile(TABLE, SeccompAction::Allow, SeccompAction::Errno(EPERM))
}

fn compile(table: &[Entry], otherwise: SeccompAction, matched: SeccompAction) -> Vec<u8> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> = BTreeMap::new();
    for (number, when, _) in table {
        let rules = rules.entry(*number).or_default();
        let condition = |index, length, operator, value| {
            SeccompCondition::new(index, length, operator, value).expect("the table has valid indices")
        };
        let conditions = match *when {
            When::Always => continue,
            When::Masked { index, mask, value } => {
                let operator = SeccompCmpOp::MaskedEq(mask);
                vec![condition(index, SeccompCmpArgLen::Qword, operator, value)]
            }
            When::Equal(equal) => all(equal, &[], condition),
            When::Except(equal, differ) => all(equal, differ, condition),
        };
        rules.push(SeccompRule::new(conditions).expect("the table has no empty condition"));
    }
    let architecture = TargetArch::try_from(std::env::consts::ARCH).expect("a supported architecture");
    let filter = SeccompFilter::new(rules, otherwise, matched, architecture).expect("actions differ");
    let program = BpfProgram::try_from(filter).expect("the table fits the kernel's limit");
    program
        .iter()
        .flat_map(|instruction| {
            let mut bytes = [0; 8];
            bytes[..2].copy_from_slice(&instruction.code.to_ne_bytes());
            bytes[2] = instruction.jt;
            bytes[3] = instruction.jf;
            bytes[4..].copy_from_slice(&instruction.k.to_ne_bytes());
            bytes
        })
        .collect()
}

fn all(
    equal: &[(u8, u64)],
    differ: &[(u8, u64)],
    condition: impl Fn(u8, SeccompCmpArgLen, SeccompCmpOp, u64) -> SeccompCondition,
) -> Vec<SeccompCondition> {
    let equal = equal.iter().map(|pair| (pair, SeccompCmpOp::Eq));
    let differ = differ.iter().map(|pair| (pair, SeccompCmpOp::Ne));
    equal
        .chain(differ)
        .map(|((index, value), operator)| {
            condition(*index, SeccompCmpArgLen::Dword, operator, *value)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_fit_the_kernel() {
        for program in programs() {
            assert_eq!(program.len() % 8, 0);
            assert!(program.len() / 8 <= 4096, "{} instructions", program.len() / 8);
        }
    }

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
    fn every_entry_has_a_reason() {
        for (number, _, reason) in allowed::TABLE.iter().chain(refused::TABLE) {
            assert!(reason.len() > 4, "{number}");
        }
    }
}
