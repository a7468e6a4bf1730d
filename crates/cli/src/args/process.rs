//! Commands that run something: `run`, `exec`, `shell`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

use super::SandboxArgs;

/// Run a command in a sandbox
///
/// Without `--name`, `--sandbox` or `--ephemeral` the command runs in an automatic session: runs with the same
/// template, workspace, network and limits share one sandbox, so what one installs the next one finds. A session that
/// is busy is not waited for; a fresh sandbox takes the command and is destroyed afterwards.
///
/// The exit status is that of the command; 124 after a timeout, 125 when Belljar itself failed, 126 or 127 when the
/// command could not be started, 128+n after signal n. Standard input is passed on unless it is a terminal.
#[derive(Args, Debug)]
#[command(override_usage = "belljar run [OPTIONS] (--cmd <LINE> | [--] <COMMAND>...)")]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) command: CommandArgs,

    /// Run in the sandbox of this name; create it if there is none
    #[arg(long, short, value_name = "NAME", help_heading = "Session", conflicts_with = "sandbox")]
    pub(crate) name: Option<String>,

    /// Run in a sandbox that exists
    #[arg(long, short, value_name = "ID", help_heading = "Session")]
    pub(crate) sandbox: Option<String>,

    /// Run in a fresh sandbox and destroy it afterwards
    #[arg(long, help_heading = "Session", conflicts_with = "sandbox")]
    pub(crate) ephemeral: bool,

    /// Start the command and return; `logs`, `wait`, `attach` and `cancel` take its id
    #[arg(long, short, help_heading = "Process")]
    pub(crate) detach: bool,

    /// Keep standard input open for `attach`
    #[arg(long, short = 'i', help_heading = "Process", requires = "detach")]
    pub(crate) stdin: bool,

    /// Give the same process for the same request with the same key, for a day
    #[arg(long, value_name = "KEY", help_heading = "Process")]
    pub(crate) idempotency_key: Option<String>,

    #[command(flatten)]
    pub(crate) told: ToldArgs,

    #[command(flatten)]
    pub(crate) options: SandboxArgs,

    /// Write a file inside the sandbox before the command (repeatable)
    #[arg(long, value_name = "PATH=CONTENT", help_heading = "Files")]
    pub(crate) write: Vec<OsString>,

    /// Print a file from inside the sandbox after the command (repeatable)
    #[arg(long, value_name = "PATH", help_heading = "Files")]
    pub(crate) read: Vec<PathBuf>,

    /// Kill the command and all it started after this long [default: 60; none with --detach]
    #[arg(long, short, value_name = "TIME", help_heading = "Limits", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,

    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// Tell which backend was chosen and what enforces each rule
    #[arg(long, help_heading = "Output")]
    pub(crate) explain: bool,
}

/// What the sandbox's policy is told about a command.
#[derive(Args, Debug, Default)]
pub(crate) struct ToldArgs {
    /// Tell the sandbox's policy about the command: a field of `context` (repeatable)
    ///
    /// The value is JSON where it is JSON, else text.
    #[arg(long, value_name = "NAME=VALUE", help_heading = "Policy")]
    pub(crate) context: Vec<String>,
}

/// Run a command in a sandbox that exists
///
/// The exit status is that of the command, as with `run`.
#[derive(Args, Debug)]
#[command(override_usage = "belljar exec [OPTIONS] <SANDBOX> (--cmd <LINE> | [--] <COMMAND>...)")]
pub(crate) struct ExecArgs {
    /// Name or id
    pub(crate) sandbox: String,

    #[command(flatten)]
    pub(crate) command: CommandArgs,

    /// Start the command and return; `logs`, `wait`, `attach` and `cancel` take its id
    #[arg(long, short, help_heading = "Process")]
    pub(crate) detach: bool,

    /// Keep standard input open for `attach`
    #[arg(long, short = 'i', help_heading = "Process", requires = "detach")]
    pub(crate) stdin: bool,

    /// Give the command a terminal
    #[arg(long, short = 'T', help_heading = "Process", conflicts_with = "json")]
    pub(crate) tty: bool,

    /// Give the same process for the same request with the same key, for a day
    #[arg(long, value_name = "KEY", help_heading = "Process")]
    pub(crate) idempotency_key: Option<String>,

    #[command(flatten)]
    pub(crate) told: ToldArgs,

    /// Who the command runs as: user, root, nobody, UID, UID:GID
    #[arg(long, short, value_name = "USER", help_heading = "Process")]
    pub(crate) user: Option<String>,

    /// Directory inside the sandbox in which the command starts
    #[arg(long, value_name = "DIR", help_heading = "Process")]
    pub(crate) workdir: Option<PathBuf>,

    /// Set an environment variable; NAME alone takes its value from here (repeatable)
    #[arg(long, short, value_name = "NAME[=VALUE]", help_heading = "Process")]
    pub(crate) env: Vec<String>,

    /// Kill the command and all it started after this long [default: 60; none with --tty and --detach]
    #[arg(long, short, value_name = "TIME", help_heading = "Limits", allow_hyphen_values = true)]
    pub(crate) timeout: Option<String>,

    /// Print the result as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

/// Open an interactive shell in a sandbox
///
/// Without a sandbox the shell opens in the automatic session of the options given. Keys, Ctrl-C among them, go to the
/// sandbox; the terminal's size follows.
#[derive(Args, Debug)]
pub(crate) struct ShellArgs {
    /// Name or id of a sandbox that exists
    pub(crate) sandbox: Option<String>,

    /// Program to open instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<OsString>,

    /// Open in a fresh sandbox and destroy it afterwards
    #[arg(long, help_heading = "Session", conflicts_with = "sandbox")]
    pub(crate) ephemeral: bool,

    #[command(flatten)]
    pub(crate) options: SandboxArgs,
}

/// What to run: words or a line.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct CommandArgs {
    /// A line for the sandbox's shell
    #[arg(long, short, value_name = "LINE")]
    pub(crate) cmd: Option<OsString>,

    /// Program and arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub(crate) argv: Vec<OsString>,
}
