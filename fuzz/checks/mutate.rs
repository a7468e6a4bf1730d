//! A fuzzer for the stable toolchain: messages that are known to be good, changed at random, for a bounded number of rounds.
//!
//! Blind, unlike `cargo fuzz`, but it runs with the tests. `BELLJAR_FUZZ_SECONDS` makes it go on for that long, and
//! `BELLJAR_FUZZ_SEED` repeats a run; what fails is printed as it was.

#![allow(clippy::print_stdout, reason = "tells how much it did")]

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

/// Rounds of each target in a run of the tests.
const ROUNDS: u64 = 1000;
/// Longer inputs are only slower.
const LONGEST: usize = 8192;

/// Gives changed forms of `seeds` to `check`.
pub(crate) fn run(name: &str, seeds: &[&[u8]], check: impl Fn(&[u8])) {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let seed = number("BELLJAR_FUZZ_SEED").unwrap_or(7);
    let long = number("BELLJAR_FUZZ_SECONDS").map(Duration::from_secs);
    let (begun, mut rounds, mut random) = (Instant::now(), 0, fastrand::Rng::with_seed(seed));
    let mut grown: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    while long.map_or(rounds < ROUNDS, |long| begun.elapsed() < long) {
        let mut input = grown[random.usize(..grown.len())].clone();
        for _ in 0..random.usize(1..6) {
            change(&mut input, &grown, &mut random);
        }
        input.truncate(LONGEST);
        let held = catch_unwind(AssertUnwindSafe(|| check(&input)));
        assert!(held.is_ok(), "{name}, seed {seed}, round {rounds}: {}", input.escape_ascii());
        // Some are changed further, so that changes add up.
        match random.usize(..64) {
            0 if grown.len() < seeds.len() + 64 => grown.push(input),
            1 => {
                let at = random.usize(..grown.len());
                if at >= seeds.len() {
                    grown[at] = input;
                }
            }
            _ => {}
        }
        rounds += 1;
    }
    println!("{name}: {rounds} inputs in {:.1} s", begun.elapsed().as_secs_f64());
}

/// The same for what is read as text.
#[allow(dead_code, reason = "not every suite reads texts")]
pub(crate) fn run_text(name: &str, seeds: &[&str], check: impl Fn(&str)) {
    let seeds: Vec<&[u8]> = seeds.iter().map(|seed| seed.as_bytes()).collect();
    run(name, &seeds, |bytes| check(&String::from_utf8_lossy(bytes)));
}

fn change(input: &mut Vec<u8>, others: &[Vec<u8>], random: &mut fastrand::Rng) {
    const ODD: [u8; 16] = [
        0, 1, 0x7f, 0x80, 0xff, 0xc0, b'.', b'/', b'%', b':', b'\r', b'\n', b' ', b'"', b'*', b'{',
    ];
    let at = random.usize(..=input.len());
    let end = (at + random.usize(..32)).min(input.len());
    match random.u8(..9) {
        0 => input.truncate(at),
        1 => drop(input.drain(at..end)),
        2 => input.insert(at, ODD[random.usize(..ODD.len())]),
        3 => input.insert(at, random.u8(..)),
        4 if at < input.len() => input[at] ^= 1 << random.u8(..8),
        5 if at < input.len() => input[at] = ODD[random.usize(..ODD.len())],
        // A number that may be a length.
        6 if at < input.len() => input[at] = input[at].wrapping_add(random.u8(..3)).wrapping_sub(1),
        7 => {
            let piece = input[at..end].to_vec();
            for _ in 0..random.usize(1..8) {
                input.splice(at..at, piece.iter().copied());
            }
        }
        _ => {
            let other = &others[random.usize(..others.len())];
            let from = random.usize(..=other.len());
            let piece = &other[from..(from + random.usize(..64)).min(other.len())];
            input.splice(at..at, piece.iter().copied());
        }
    }
}
