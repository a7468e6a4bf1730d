//! `belljar-leaks save FILE` before a test run, `belljar-leaks compare FILE` after it.
//!
//! Compares everything of Belljar on the machine; exit status 1 and a list when something new stayed.

#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

use std::process::ExitCode;

use belljar_testkit::leaks::{Scope, Snapshot};
use belljar_testkit::{PROMPT, wait_until};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words[..] {
        ["save", file] => {
            std::fs::write(file, Snapshot::take(&Scope::Machine).to_lines()).map(|()| 0)
        }
        ["compare", file] => std::fs::read_to_string(file).map(|before| compare(&before)),
        _ => {
            eprintln!("usage: belljar-leaks save|compare FILE");
            return ExitCode::from(2);
        }
    };
    outcome.map_or_else(
        |error| {
            eprintln!("error: {}: {error}", arguments[1]);
            ExitCode::from(2)
        },
        ExitCode::from,
    )
}

fn compare(before: &str) -> u8 {
    let before = Snapshot::from_lines(before);
    let mut new = Snapshot::default();
    let same = wait_until(PROMPT, || {
        new = Snapshot::take(&Scope::Machine).since(&before);
        new.is_empty().then_some(())
    });
    if same.is_some() {
        println!("leaks: none");
        return 0;
    }
    println!("leaks:\n{new}");
    1
}
