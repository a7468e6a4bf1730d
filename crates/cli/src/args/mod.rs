//! What can be typed: clap types only.
//!
//! These types hold words as they were written; `request.rs` and `settings/` make meaning of them. One file for each
//! group of commands.

mod bench;
mod files;
mod global;
mod host;
mod identity;
mod layers;
mod life_cycle;
mod network;
mod own;
mod policy;
mod ports;
mod process;
mod processes;
mod record;
mod sandbox;
mod secrets;
mod server;
mod snapshot;

pub(crate) use bench::{
    BenchApiArgs, BenchArgs, BenchCommand, BenchDecisionsArgs, BenchEgressArgs, BenchIdleArgs,
    BenchStartArgs, BenchToolsArgs,
};
pub(crate) use files::{CpArgs, FilesArgs, FilesCommand, Place, SearchArgs};
pub(crate) use global::GlobalArgs;
pub(crate) use host::{DoctorArgs, ProbeArgs, SetupArgs, TemplatesArgs};
pub(crate) use identity::{
    KeyCreateArgs, KeysArgs, KeysCommand, TenantArgs, TenantsArgs, TenantsCommand, TokenArgs,
};
pub(crate) use layers::LayerArgs;
pub(crate) use life_cycle::{
    CreateArgs, DestroyArgs, ExtendArgs, InspectArgs, ListArgs, PauseArgs, ProxyArgs,
};
pub(crate) use network::{ApprovalsArgs, ApprovalsCommand, NetworkArgs, NetworkCommand};
pub(crate) use own::{CompletionsArgs, ConfigArgs, ConfigCommand, VersionArgs};
pub(crate) use policy::{ExplainArgs, PlaceArgs, PolicyArgs, PolicyCommand};
pub(crate) use ports::{ExposeArgs, ForwardArgs, HideArgs, PortsArgs};
pub(crate) use process::{CommandArgs, ExecArgs, RunArgs, ShellArgs, ToldArgs};
pub(crate) use processes::{AttachArgs, CancelArgs, LogsArgs, PsArgs, SignalArgs, WaitArgs};
pub(crate) use record::{
    AuditArgs, AuditCommand, AuditQueryArgs, EventsArgs, WebhooksArgs, WebhooksCommand,
};
pub(crate) use sandbox::SandboxArgs;
pub(crate) use secrets::{SecretSetArgs, SecretsArgs, SecretsCommand};
pub(crate) use server::{ServeArgs, ServerArgs, ServerCommand};
pub(crate) use snapshot::{SnapshotArgs, SnapshotCommand, SnapshotRestoreArgs};

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

Processes:
  ps           List processes
  logs         Print what a process wrote
  wait         Wait for the end of a process
  attach       Follow a process and type to it
  signal       Send a signal to a process
  cancel       End a process and all it started

Sandboxes:
  create       Create a sandbox
  list         List sandboxes
  inspect      Show one sandbox or process
  extend       Start the clocks of a sandbox's lease anew
  pause        Freeze every process of a sandbox
  resume       Let a paused sandbox go on
  destroy      Destroy sandboxes
  events       Show what happened to sandboxes and processes
  snapshot     Keep the files of a sandbox, and make sandboxes from them
  network      See and change what a sandbox may reach
  approvals    Answer for connections that wait to be allowed
  proxy        Use a sandbox through lines of JSON

Files in sandboxes:
  cp           Copy files and directories into or out of a sandbox
  files        List, read, write, search, watch, pack and unpack

Ports of sandboxes:
  expose       Show a port of a sandbox over HTTP
  ports        List the ports of a sandbox that are shown
  hide         Show a port no longer
  forward      Join ports of this machine's loopback to ports of a sandbox

Policies:
  policy       Check, explain, compare, keep and learn policy documents

Workspace layers (--workspace-mode overlay):
  diff         List what changed in a sandbox's workspace
  apply        Write the changes to the workspace on the host
  discard      Throw the changes away

The server, and who may use it:
  serve        Serve the API on a socket and a port
  server       Look at, start or stop the server of this state directory
  keys         Make, list and revoke API keys
  tenants      Who shares a server without seeing each other
  token        Issue a signed token for one sandbox
  secrets      What requests of sandboxes are given, and sandboxes never see
  webhooks     Addresses that events are sent to
  audit        Check and search the audit log

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
    Ps(PsArgs),
    Logs(LogsArgs),
    Wait(WaitArgs),
    Attach(AttachArgs),
    Signal(SignalArgs),
    Cancel(CancelArgs),
    Create(Box<CreateArgs>),
    #[command(visible_alias = "ls")]
    List(ListArgs),
    Inspect(InspectArgs),
    Extend(ExtendArgs),
    /// Freeze every process of a sandbox
    ///
    /// Nothing inside runs until `belljar resume`. Its lease goes on.
    Pause(PauseArgs),
    /// Let a paused sandbox go on
    Resume(PauseArgs),
    #[command(visible_alias = "rm")]
    Destroy(DestroyArgs),
    Events(EventsArgs),
    Snapshot(SnapshotArgs),
    Network(NetworkArgs),
    Approvals(ApprovalsArgs),
    Proxy(Box<ProxyArgs>),
    Cp(CpArgs),
    Files(FilesArgs),
    Expose(ExposeArgs),
    Ports(PortsArgs),
    Hide(HideArgs),
    Forward(ForwardArgs),
    /// List what changed in a sandbox's workspace layer
    Diff(LayerArgs),
    /// Write the changes of a workspace layer to the host directory
    ///
    /// The layer is empty afterwards. Nothing is written where the host directory changed in the meantime in a way
    /// that conflicts with the layer.
    Apply(LayerArgs),
    /// Throw the changes of a workspace layer away
    Discard(LayerArgs),
    Policy(PolicyArgs),
    Serve(ServeArgs),
    Server(ServerArgs),
    Keys(KeysArgs),
    Tenants(TenantsArgs),
    Token(TokenArgs),
    Secrets(SecretsArgs),
    Webhooks(WebhooksArgs),
    Audit(AuditArgs),
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
            Self::Ps(args) => args.json,
            Self::Logs(args) => args.json,
            Self::Wait(args) => args.json,
            Self::Signal(args) => args.json,
            Self::Cancel(args) => args.json,
            Self::Extend(args) => args.json,
            Self::Pause(args) | Self::Resume(args) => args.json,
            Self::Events(args) => args.json,
            Self::Snapshot(args) => args.json(),
            Self::Network(args) => args.json(),
            Self::Approvals(args) => args.json(),
            Self::Cp(args) => args.json,
            Self::Files(args) => args.json(),
            Self::Expose(args) => args.json,
            Self::Ports(args) => args.json,
            Self::Hide(args) => args.json,
            Self::Forward(args) => args.json,
            Self::Policy(args) => args.json(),
            Self::Serve(args) => args.json,
            Self::Server(args) => args.json(),
            Self::Keys(args) => args.json(),
            Self::Tenants(args) => args.json(),
            Self::Token(args) => args.json,
            Self::Secrets(args) => args.json(),
            Self::Webhooks(args) => args.json(),
            Self::Audit(args) => args.json(),
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
            Self::Shell(_) | Self::Attach(_) | Self::Proxy(_) | Self::Completions(_) => false,
        }
    }
}

#[cfg(test)]
mod tests;
