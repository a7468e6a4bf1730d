//! What can be typed: clap types only.
//!
//! These types hold words as they were written; `request.rs` and `settings/` make meaning of them. One file for each
//! group of commands.

mod bench;
mod global;
mod host;
mod layers;
mod life_cycle;
mod own;
mod process;
mod sandbox;

pub(crate) use bench::{BenchArgs, BenchCommand, BenchIdleArgs, BenchStartArgs};
pub(crate) use global::GlobalArgs;
pub(crate) use host::{DoctorArgs, ProbeArgs, SetupArgs, TemplatesArgs};
pub(crate) use layers::LayerArgs;
pub(crate) use life_cycle::{CreateArgs, DestroyArgs, InspectArgs, ListArgs};
pub(crate) use own::{CompletionsArgs, ConfigArgs, ConfigCommand, VersionArgs};
pub(crate) use process::{CommandArgs, ExecArgs, RunArgs, ShellArgs};
pub(crate) use sandbox::SandboxArgs;

use clap::{Parser, Subcommand};

/// A sealed, see-through computer for untrusted code
#[derive(Debug, Parser)]
#[command(
    name = "belljar",
    version,
    disable_help_subcommand = true,
    subcommand_required = true,
    arg_required_else_help = true,
    help_template = TOP_HELP,
    max_term_width = 100
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Commands by task. A test compares it with the commands that exist.
const TOP_HELP: &str = "\
{about}

Usage: {usage}

Run commands:
  run          Run a command in a sandbox
  exec         Run a command in a sandbox that exists
  shell        Open an interactive shell in a sandbox

Sandboxes:
  create       Create a sandbox
  list         List sandboxes
  inspect      Show one sandbox
  destroy      Destroy sandboxes

Workspace layers (--workspace-mode overlay):
  diff         List what changed in a sandbox's workspace
  apply        Write the changes to the workspace on the host
  discard      Throw the changes away

This host:
  templates    List what a sandbox can start from
  probe        Try every backend and tell what works
  setup        Prepare this host and tell what is missing
  doctor       Explain what this host can and cannot enforce
  bench        Measure this host, with peers beside Belljar in one run

Belljar itself:
  config       Show settings and where they come from
  completions  Print completions for a shell
  version      Print the version

Options:
{options}

Exit status of `run`, `exec` and `shell`: that of the command; 124 after a timeout, 125 when Belljar
itself failed, 126 or 127 when the command could not be started, 128+n after signal n.
";

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Box<RunArgs>),
    Exec(ExecArgs),
    Shell(Box<ShellArgs>),
    Create(Box<CreateArgs>),
    #[command(visible_alias = "ls")]
    List(ListArgs),
    Inspect(InspectArgs),
    #[command(visible_alias = "rm")]
    Destroy(DestroyArgs),
    /// List what changed in a sandbox's workspace layer
    Diff(LayerArgs),
    /// Write the changes of a workspace layer to the host directory
    ///
    /// The layer is empty afterwards. Nothing is written where the host directory changed in the meantime in a way
    /// that conflicts with the layer.
    Apply(LayerArgs),
    /// Throw the changes of a workspace layer away
    Discard(LayerArgs),
    Templates(TemplatesArgs),
    Probe(ProbeArgs),
    Setup(SetupArgs),
    Doctor(DoctorArgs),
    Bench(BenchArgs),
    Config(ConfigArgs),
    Completions(CompletionsArgs),
    Version(VersionArgs),
}

impl Command {
    /// Whether the answer, or the failure, is to be JSON.
    pub(crate) fn json(&self) -> bool {
        match self {
            Self::Run(args) => args.json,
            Self::Exec(args) => args.json,
            Self::Create(args) => args.json,
            Self::List(args) => args.json,
            Self::Inspect(args) => args.json,
            Self::Destroy(args) => args.json,
            Self::Diff(args) | Self::Apply(args) | Self::Discard(args) => args.json,
            Self::Templates(args) => args.json,
            Self::Probe(args) => args.json,
            Self::Setup(args) => args.json,
            Self::Doctor(args) => args.json,
            Self::Bench(args) => args.json(),
            Self::Config(args) => args.json(),
            Self::Version(args) => args.json,
            Self::Shell(_) | Self::Completions(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
