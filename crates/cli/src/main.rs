//! The command line of Belljar.
//!
//! A table of contents: what is typed (`args`), what holds (`settings`), what is meant (`request`), what is done
//! (`commands`), what is shown (`output`). Only this crate reads arguments and environment, prints, and exits.

#![forbid(unsafe_code)]

mod args;
mod backends;
mod commands;
mod context;
mod env_vars;
mod failure;
mod output;
mod request;
mod settings;
mod terminal;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::Parser;

use crate::args::{Cli, Command};
use crate::commands::{Done, usage};
use crate::context::Context;
use crate::failure::Failure;

fn main() -> ExitCode {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    // The launcher must stay one thread with little memory, so it leaves before anything else begins.
    if let Some(exit) = commands::launcher::divert(&arguments) {
        return exit;
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return usage::answer(&error, &arguments),
    };
    let json = cli.command.json();
    match dispatch(cli) {
        Ok(done) => ExitCode::from(done.status()),
        Err(failure) => {
            output::print_failure(&failure, json);
            ExitCode::from(failure.exit_status())
        }
    }
}

fn dispatch(cli: Cli) -> Result<Done, Failure> {
    let global = cli.global;
    let context = |flags| Context::new(&global, flags);
    match cli.command {
        Command::Run(args) => {
            let context = context(args.flags())?;
            context.block_on(commands::run::run(&context, *args))
        }
        Command::Exec(args) => {
            let context = context(args.flags())?;
            context.block_on(commands::exec::exec(&context, args))
        }
        Command::Shell(args) => {
            let context = context(args.options.flags())?;
            context.block_on(commands::shell::shell(&context, *args))
        }
        Command::Create(args) => {
            let context = context(args.options.flags())?;
            context.block_on(commands::create::create(&context, *args))
        }
        Command::List(args) => {
            let context = context(Vec::new())?;
            context.block_on(commands::list::list(&context, &args))
        }
        Command::Inspect(args) => {
            let context = context(Vec::new())?;
            context.block_on(commands::inspect::inspect(&context, &args))
        }
        Command::Destroy(args) => {
            let context = context(Vec::new())?;
            context.block_on(commands::destroy::destroy(&context, &args))
        }
        Command::Diff(args) => {
            let context = context(Vec::new())?;
            context.block_on(commands::layers::diff(&context, &args))
        }
        Command::Apply(args) => {
            let context = context(Vec::new())?;
            context.block_on(commands::layers::apply(&context, &args))
        }
        Command::Discard(args) => {
            let context = context(Vec::new())?;
            context.block_on(commands::layers::discard(&context, &args))
        }
        Command::Templates(args) => {
            let context = context(Vec::new())?;
            context.block_on(commands::templates::templates(&context, &args))
        }
        Command::Probe(args) => {
            let context = context(Vec::new())?;
            context.block_on(commands::probe::probe(&context, &args))
        }
        Command::Setup(args) => {
            let context = context(Vec::new())?;
            context.block_on(commands::setup::setup(&context, &args))
        }
        Command::Doctor(args) => {
            let context = context(Vec::new())?;
            context.block_on(commands::doctor::doctor(&context, &args))
        }
        Command::Bench(args) => {
            let context = context(Vec::new())?;
            context.block_on(commands::bench::bench(&context, &args))
        }
        Command::Config(args) => commands::config::config(&context(Vec::new())?, &args),
        Command::Completions(args) => commands::completions::completions(&args),
        Command::Version(args) => commands::version::version(&args),
    }
}
