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
    /// A command that only needs a context, and runs in it.
    macro_rules! go {
        ($flags:expr, $command:path, $args:expr) => {{
            let context = Context::new(&global, $flags)?;
            context.block_on($command(&context, $args))
        }};
        ($command:path, $args:expr) => {
            go!(Vec::new(), $command, $args)
        };
    }
    match cli.command {
        Command::Run(args) => go!(args.flags(), commands::run::run, *args),
        Command::Exec(args) => go!(args.flags(), commands::exec::exec, args),
        Command::Shell(args) => go!(args.options.flags(), commands::shell::shell, *args),
        Command::Ps(args) => go!(commands::ps::ps, &args),
        Command::Logs(args) => go!(commands::logs::logs, &args),
        Command::Wait(args) => go!(commands::processes::wait, &args),
        Command::Attach(args) => go!(commands::attach::attach, &args),
        Command::Signal(args) => go!(commands::processes::signal, &args),
        Command::Cancel(args) => go!(commands::processes::cancel, &args),
        Command::Create(args) => go!(args.options.flags(), commands::create::create, *args),
        Command::List(args) => go!(commands::list::list, &args),
        Command::Inspect(args) => go!(commands::inspect::inspect, &args),
        Command::Extend(args) => go!(commands::lease::extend, &args),
        Command::Pause(args) => go!(commands::lease::pause, &args),
        Command::Resume(args) => go!(commands::lease::resume, &args),
        Command::Destroy(args) => go!(commands::destroy::destroy, &args),
        Command::Events(args) => go!(commands::events::events, &args),
        Command::Snapshot(args) => go!(args.flags(), commands::snapshot::snapshot, args),
        Command::Network(args) => go!(commands::network::network, args),
        Command::Approvals(args) => go!(commands::approvals::approvals, args),
        Command::Proxy(args) => go!(args.options.flags(), commands::proxy::proxy, *args),
        Command::Cp(args) => go!(commands::cp::cp, args),
        Command::Files(args) => go!(commands::files::files, args),
        Command::Diff(args) => go!(commands::layers::diff, &args),
        Command::Apply(args) => go!(commands::layers::apply, &args),
        Command::Discard(args) => go!(commands::layers::discard, &args),
        Command::Policy(args) if args.needs_server() => go!(commands::policy::kept, args),
        Command::Policy(args) => commands::policy::policy(&args),
        Command::Serve(args) => {
            let context = Context::for_server(&global)?;
            context.block_on(commands::serve::serve(&context, args))
        }
        Command::Server(args) => go!(commands::server::server, &args),
        Command::Keys(args) => go!(commands::keys::keys, args),
        Command::Tenants(args) => go!(commands::tenants::tenants, args),
        Command::Expose(args) => go!(commands::ports::expose, &args),
        Command::Ports(args) => go!(commands::ports::ports, &args),
        Command::Hide(args) => go!(commands::ports::hide, &args),
        Command::Forward(args) => go!(commands::forward::forward, &args),
        Command::Token(args) => go!(commands::token::token, &args),
        Command::Secrets(args) => go!(commands::secrets::secrets, args),
        Command::Webhooks(args) => go!(commands::webhooks::webhooks, args),
        Command::Audit(args) => go!(commands::audit::audit, args),
        Command::Templates(args) => go!(commands::templates::templates, &args),
        Command::Probe(args) => go!(commands::probe::probe, &args),
        Command::Setup(args) => go!(commands::setup::setup, &args),
        Command::Doctor(args) => go!(commands::doctor::doctor, &args),
        Command::Bench(args) => go!(commands::bench::bench, &args),
        Command::Config(args) => {
            commands::config::config(&Context::new(&global, Vec::new())?, &args)
        }
        Command::Completions(args) => commands::completions::completions(&args),
        Command::Version(args) => commands::version::version(&args),
    }
}
