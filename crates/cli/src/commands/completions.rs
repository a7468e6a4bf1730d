//! `belljar completions`: made from the same types that parse.

use clap::CommandFactory;

use super::Done;
use crate::args::{Cli, CompletionsArgs};
use crate::failure::Failure;
use crate::output::print;

pub(crate) fn completions(args: &CompletionsArgs) -> Result<Done, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "belljar", &mut script);
    print(&String::from_utf8_lossy(&script))?;
    Ok(Done::Success)
}
