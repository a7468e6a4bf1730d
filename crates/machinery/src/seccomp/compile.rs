//! From tables to a program for the kernel.
//!
//! Written by hand because of what a filter costs: the kernel checks and translates it anew for every command that is
//! started, and tries it on every known call number to find those it can allow without asking. A chain of comparisons
//! in the order of the table took 1.3 ms for that, the search tree built here takes a tenth.

use std::collections::BTreeMap;

use super::{Entry, When};

/// One instruction of the kernel's classic filter machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    code: u16,
    /// How many instructions to skip if the comparison holds, and if not.
    when_true: u8,
    when_false: u8,
    operand: u32,
}

// Operations, as <linux/bpf_common.h> composes them.
const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

// Where things are in `struct seccomp_data`.
const NUMBER: u32 = 0;
const ARCHITECTURE: u32 = 4;
const ARGUMENTS: u32 = 16;

// Answers.
const ALLOW: u32 = 0x7FFF_0000;
const KILL_PROCESS: u32 = 0x8000_0000;
const ERRNO: u32 = 0x0005_0000;
const EPERM: u32 = ERRNO | 1;
const ENOSYS: u32 = ERRNO | 38;

#[cfg(target_arch = "x86_64")]
const NATIVE_ARCHITECTURE: u32 = 0xC000_003E;
#[cfg(target_arch = "aarch64")]
const NATIVE_ARCHITECTURE: u32 = 0xC000_00B7;

/// What happens to one call number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Verdict {
    /// In order: the first whose conditions all hold decides.
    conditional: Vec<(Vec<Condition>, u32)>,
    otherwise: u32,
}

/// A condition on one half of an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Condition {
    offset: u32,
    mask: u32,
    value: u32,
    equal: bool,
}

/// Compiles the tables. What is refused goes before what is allowed; what is in neither does not exist.
pub(super) fn compile(allowed: &[Entry], refused: &[Entry]) -> Vec<u8> {
    let mut verdicts: BTreeMap<u32, Verdict> = BTreeMap::new();
    for (table, answer) in [(refused, EPERM), (allowed, ALLOW)] {
        for (number, when, _) in table {
            let number = u32::try_from(*number).expect("call numbers are small and positive");
            let unknown = Verdict { conditional: Vec::new(), otherwise: ENOSYS };
            let verdict = verdicts.entry(number).or_insert(unknown);
            match conditions(*when) {
                Some(conditions) => verdict.conditional.push((conditions, answer)),
                // The first table to speak without condition has the last word.
                None if verdict.otherwise == ENOSYS => verdict.otherwise = answer,
                None => {}
            }
        }
    }
    let mut program = vec![
        load(ARCHITECTURE),
        jump_unless(EQUAL, NATIVE_ARCHITECTURE, 1),
        jump(1),
        answer(KILL_PROCESS), // the 32-bit gate
        load(NUMBER),
    ];
    program.extend(search(&segments(&verdicts)));
    program.iter().flat_map(Instruction::to_bytes).collect()
}

/// A program that knows nothing of these calls and leaves all others to the programs beside it, the gate included.
pub(super) fn take_away(calls: &[Entry]) -> Vec<u8> {
    let mut program = vec![load(NUMBER)];
    for (number, ..) in calls {
        let number = u32::try_from(*number).expect("call numbers are small and positive");
        program.extend([jump_unless(EQUAL, number, 1), answer(ENOSYS)]);
    }
    program.push(answer(ALLOW));
    program.iter().flat_map(Instruction::to_bytes).collect()
}

/// Runs of call numbers with the same verdict, each with its first number; together they cover all numbers.
fn segments(verdicts: &BTreeMap<u32, Verdict>) -> Vec<(u32, Verdict)> {
    let unknown = Verdict { conditional: Vec::new(), otherwise: ENOSYS };
    let mut segments = vec![(0, unknown.clone())];
    let mut push = |start: u32, verdict: &Verdict| match segments.last_mut() {
        Some((_, last)) if last == verdict => {}
        Some((last_start, last)) if *last_start == start => *last = verdict.clone(),
        _ => segments.push((start, verdict.clone())),
    };
    for (number, verdict) in verdicts {
        push(*number, verdict);
        if !verdicts.contains_key(&(number + 1)) {
            push(number + 1, &unknown);
        }
    }
    segments
}

/// A balanced tree of comparisons with the verdicts as leaves.
fn search(segments: &[(u32, Verdict)]) -> Vec<Instruction> {
    if let [(_, verdict)] = segments {
        return leaf(verdict);
    }
    let (low, high) = segments.split_at(segments.len() / 2);
    let (below, above) = (search(low), search(high));
    let mut program = match u8::try_from(below.len()) {
        Ok(distance) => vec![Instruction {
            code: AT_LEAST,
            when_true: distance,
            when_false: 0,
            operand: high[0].0,
        }],
        Err(_) => vec![
            Instruction { code: AT_LEAST, when_true: 0, when_false: 1, operand: high[0].0 },
            jump(u32::try_from(below.len()).expect("programs are short")),
        ],
    };
    program.extend(below);
    program.extend(above);
    program
}

fn leaf(verdict: &Verdict) -> Vec<Instruction> {
    let mut program = Vec::new();
    for (conditions, matched) in &verdict.conditional {
        // Each condition that fails jumps over the rest of this rule, its answer included.
        let mut rest = vec![answer(*matched)];
        for condition in conditions.iter().rev() {
            let skip = u8::try_from(rest.len()).expect("rules are short");
            let (when_true, when_false) = if condition.equal { (0, skip) } else { (skip, 0) };
            let mut test = vec![load(condition.offset)];
            if condition.mask != u32::MAX {
                test.push(Instruction {
                    code: AND,
                    when_true: 0,
                    when_false: 0,
                    operand: condition.mask,
                });
            }
            test.push(Instruction { code: EQUAL, when_true, when_false, operand: condition.value });
            test.extend(rest);
            rest = test;
        }
        program.extend(rest);
    }
    program.push(answer(verdict.otherwise));
    program
}

/// `None`: always.
fn conditions(when: When) -> Option<Vec<Condition>> {
    let half = |index: u8, upper: bool| ARGUMENTS + 8 * u32::from(index) + 4 * u32::from(upper);
    let whole = |index: u8, value: u64, equal: bool| {
        let value = u32::try_from(value).expect("the tables compare low halves");
        Condition { offset: half(index, false), mask: u32::MAX, value, equal }
    };
    match when {
        When::Always => None,
        When::Flag { index, flag } => Some(vec![Condition {
            offset: half(index, false),
            mask: flag,
            value: flag,
            equal: true,
        }]),
        When::Equal(equal) => {
            Some(equal.iter().map(|&(index, value)| whole(index, value, true)).collect())
        }
        When::Except(equal, differ) => Some(
            equal
                .iter()
                .map(|&(index, value)| whole(index, value, true))
                .chain(differ.iter().map(|&(index, value)| whole(index, value, false)))
                .collect(),
        ),
    }
}

fn load(offset: u32) -> Instruction {
    Instruction { code: LOAD, when_true: 0, when_false: 0, operand: offset }
}

fn jump(distance: u32) -> Instruction {
    Instruction { code: JUMP, when_true: 0, when_false: 0, operand: distance }
}

fn jump_unless(code: u16, operand: u32, distance: u8) -> Instruction {
    Instruction { code, when_true: 0, when_false: distance, operand }
}

fn answer(operand: u32) -> Instruction {
    Instruction { code: RETURN, when_true: 0, when_false: 0, operand }
}

impl Instruction {
    fn to_bytes(self: &Instruction) -> [u8; 8] {
        let code = self.code.to_ne_bytes();
        let operand = self.operand.to_ne_bytes();
        [
            code[0],
            code[1],
            self.when_true,
            self.when_false,
            operand[0],
            operand[1],
            operand[2],
            operand[3],
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the kernel would answer: the same machine, a few lines long.
    fn run(program: &[u8], architecture: u32, number: u32, arguments: [u64; 6]) -> u32 {
        let word = |offset: u32| match offset {
            NUMBER => number,
            ARCHITECTURE => architecture,
            _ => {
                let argument = arguments[((offset - ARGUMENTS) / 8) as usize];
                if (offset - ARGUMENTS).is_multiple_of(8) {
                    argument as u32
                } else {
                    (argument >> 32) as u32
                }
            }
        };
        let (mut at, mut accumulator) = (0usize, 0u32);
        loop {
            let bytes = &program[at * 8..at * 8 + 8];
            let code = u16::from_ne_bytes([bytes[0], bytes[1]]);
            let operand = u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            let branch = |held: bool| usize::from(if held { bytes[2] } else { bytes[3] });
            at += 1;
            match code {
                LOAD => accumulator = word(operand),
                AND => accumulator &= operand,
                JUMP => at += operand as usize,
                EQUAL => at += branch(accumulator == operand),
                AT_LEAST => at += branch(accumulator >= operand),
                RETURN => return operand,
                _ => panic!("unknown operation {code}"),
            }
        }
    }

    const ALLOWED: &[Entry] = &[
        (1, When::Always, "one"),
        (2, When::Always, "two"),
        (7, When::Equal(&[(0, 5), (2, 6)]), "seven with five and six"),
        (9, When::Always, "nine, mostly"),
        (400, When::Always, "far away"),
    ];
    const REFUSED: &[Entry] = &[
        (3, When::Always, "three"),
        (9, When::Flag { index: 1, flag: 0x10 }, "nine with a flag"),
        (7, When::Except(&[(0, 5)], &[(2, 6)]), "seven with five but not six"),
    ];

    #[test]
    fn every_number_gets_the_verdict_of_the_tables() {
        let program = compile(ALLOWED, REFUSED);
        let check = |number: u32, arguments: [u64; 6], expected: u32| {
            assert_eq!(
                run(&program, NATIVE_ARCHITECTURE, number, arguments),
                expected,
                "{number} {arguments:?}"
            );
        };
        for number in [0, 4, 5, 6, 8, 10, 399, 401, 0x4000_0001, u32::MAX] {
            check(number, [0; 6], ENOSYS);
        }
        for number in [1, 2, 9, 400] {
            check(number, [0; 6], ALLOW);
        }
        check(3, [0; 6], EPERM);
        check(9, [0, 0x10, 0, 0, 0, 0], EPERM);
        check(9, [0, 0x0F, 0, 0, 0, 0], ALLOW);
        check(9, [0, 0x31, 0, 0, 0, 0], EPERM);
        check(7, [5, 0, 6, 0, 0, 0], ALLOW);
        check(7, [5, 0, 7, 0, 0, 0], EPERM);
        check(7, [4, 0, 6, 0, 0, 0], ENOSYS);
    }

    #[test]
    fn both_programs_together_are_the_tables() {
        let (allowed, refused) = (super::super::allowed::TABLE, super::super::refused::TABLE);
        let whole = compile(allowed, refused);
        let (shared, own) = (super::super::shared(), super::super::own());
        let arguments = [[0; 6], [0x1000_0000; 6], [u64::from(u32::MAX); 6], [16, 0, 0, 0, 0, 0]];
        for number in (0..600).chain(0x4000_0000..0x4000_0258) {
            for arguments in arguments {
                for architecture in [NATIVE_ARCHITECTURE, 0x4000_0003] {
                    let ask = |program| run(program, architecture, number, arguments);
                    // The kernel takes the answer that is first in this order.
                    let together = [KILL_PROCESS, EPERM, ENOSYS, ALLOW]
                        .into_iter()
                        .find(|answer| [ask(shared), ask(own)].contains(answer));
                    assert_eq!(together, Some(ask(&whole)), "{number} {arguments:?}");
                }
            }
        }
        assert_eq!(run(shared, NATIVE_ARCHITECTURE, libc::SYS_clone3 as u32, [0; 6]), ALLOW);
        assert_eq!(run(own, NATIVE_ARCHITECTURE, libc::SYS_clone3 as u32, [0; 6]), ENOSYS);
    }

    #[test]
    fn another_architecture_ends_the_process() {
        let program = compile(ALLOWED, REFUSED);
        assert_eq!(run(&program, 0x4000_0003, 1, [0; 6]), KILL_PROCESS);
    }

    #[test]
    fn the_real_tables_agree_with_a_plain_reading_of_them() {
        let (allowed, refused) = (super::super::allowed::TABLE, super::super::refused::TABLE);
        let program = compile(allowed, refused);
        let plain = |number: i64, table: &[Entry]| {
            table.iter().any(|(known, when, _)| *known == number && matches!(when, When::Always))
        };
        let conditional = |number: i64| {
            allowed
                .iter()
                .chain(refused)
                .any(|(known, when, _)| *known == number && !matches!(when, When::Always))
        };
        for number in (0..600).filter(|number| !conditional(*number)) {
            let expected = match (plain(number, refused), plain(number, allowed)) {
                (true, _) => EPERM,
                (false, true) => ALLOW,
                (false, false) => ENOSYS,
            };
            assert_eq!(
                run(&program, NATIVE_ARCHITECTURE, number as u32, [0; 6]),
                expected,
                "call {number}"
            );
        }
        assert!(program.len() / 8 < 600, "{} instructions", program.len() / 8);
    }
}
