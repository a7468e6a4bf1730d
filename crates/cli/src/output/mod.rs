//! What people and programs get to read.
//!
//! Standard output is data and pipes cleanly; standard error is for people. A reader that went away is no failure.

mod explain;
mod failure;
mod inert;
mod shapes;
mod table;
mod time;

pub(crate) use explain::{print_explanation, rules_table};
pub(crate) use failure::print_failure;
pub(crate) use inert::Inert;
pub(crate) use shapes::{DetachShape, FileShape, RunShape, SandboxShape};
pub(crate) use table::Table;
pub(crate) use time::{age, time};

use std::io::{self, IsTerminal, Write};

use belljar_codes::Code;
use serde::Serialize;

use crate::env_vars;
use crate::failure::Failure;

/// Writes `text` to standard output.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    settle(stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()))
}

/// Writes `value` to standard output as one JSON document.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| unwritable(&error))?;
    print(&format!("{text}\n"))
}

/// Writes `value` to standard output as one line of JSON, for streams of them.
pub(crate) fn print_json_line(value: &impl Serialize) -> Result<(), Failure> {
    print(&format!("{}\n", json_line(value)?))
}

/// `value` as JSON without a line break.
pub(crate) fn json_line(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string(value).map_err(|error| unwritable(&error))
}

fn unwritable(error: &serde_json::Error) -> Failure {
    Failure::new(Code::Internal, "the result cannot be written as JSON").caused_by(error)
}

/// The word that stands for a value of the API in JSON: `ready`, `timed_out`.
pub(crate) fn word(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        _ => String::new(),
    }
}

/// Tells people something that is not the result.
pub(crate) fn note(quiet: bool, text: &str) {
    if !quiet {
        say(&format!("note: {text}\n"));
    }
}

/// Writes to standard error. Nobody reading it is not worth failing for.
pub(crate) fn say(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// `text` in bold on a terminal that wants it, plain otherwise.
pub(crate) fn strong(text: &str, color: &str) -> String {
    if io::stderr().is_terminal()
        && std::env::var_os(env_vars::NO_COLOR).is_none_or(|v| v.is_empty())
    {
        format!("\u{1b}[1;{color}m{text}\u{1b}[0m")
    } else {
        text.to_owned()
    }
}

/// Whether a failed write means that the reader went away.
pub(crate) fn is_closed(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

fn settle(result: io::Result<()>) -> Result<(), Failure> {
    match result {
        Err(error) if !is_closed(&error) => {
            Err(Failure::new(Code::Internal, "standard output cannot be written").caused_by(&error))
        }
        _ => Ok(()),
    }
}
