//! Commands about processes that run or ran: `ps`, `logs`, `wait`, `cancel`, `signal`, `attach`.

use clap::Args;

/// List processes, newest first
///
/// Without `--all` those that run. A process stays on record, with its output, for seven days after its end.
#[derive(Args, Debug)]
pub(crate) struct PsArgs {
    /// Only of this sandbox, by name or id
    pub(crate) sandbox: Option<String>,

    /// Also those that have ended
    #[arg(long, short)]
    pub(crate) all: bool,

    /// Only those with this status (repeatable)
    #[arg(long, value_name = "STATUS", value_parser = ["starting", "running", "succeeded", "failed", "cancelled", "lost"])]
    pub(crate) status: Vec<String>,

    /// Print a list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print what a process wrote
///
/// Output is kept whether or not somebody reads it. Bytes on standard error go to standard error.
#[derive(Args, Debug)]
pub(crate) struct LogsArgs {
    /// Id of the process
    pub(crate) process: String,

    /// Go on until the process ends
    #[arg(long, short)]
    pub(crate) follow: bool,

    /// Begin at this byte of each stream
    #[arg(long, value_name = "OFFSET", default_value_t = 0)]
    pub(crate) since: u64,

    /// Only this stream
    #[arg(long, value_name = "STREAM", value_parser = ["stdout", "stderr"])]
    pub(crate) stream: Option<String>,

    /// Print each piece as a line of JSON, with its stream and offset
    #[arg(long)]
    pub(crate) json: bool,
}

/// Wait for the end of a process
///
/// The exit status is that of the process, or 124 when it still runs after `--timeout`.
#[derive(Args, Debug)]
pub(crate) struct WaitArgs {
    /// Id of the process
    pub(crate) process: String,

    /// Wait no longer than this; 0 only looks
    #[arg(long, short, value_name = "TIME")]
    pub(crate) timeout: Option<String>,

    /// Print the process as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// End a process and all it started
///
/// TERM first, then KILL after the grace time.
#[derive(Args, Debug)]
pub(crate) struct CancelArgs {
    /// Id of the process
    pub(crate) process: String,

    /// Between TERM and KILL; 0 kills at once [default: 5]
    #[arg(long, value_name = "TIME")]
    pub(crate) grace: Option<String>,

    /// Print the process as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Send a signal to a process
#[derive(Args, Debug)]
pub(crate) struct SignalArgs {
    /// Id of the process
    pub(crate) process: String,

    /// A name such as HUP or USR1, or a number
    pub(crate) signal: String,

    /// Print what was done as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Follow a process and type to it
///
/// Any number of people may attach. A process with a terminal is left with Ctrl-P Ctrl-Q, and goes on; for others
/// Ctrl-C leaves. The exit status is that of the process where it ended.
#[derive(Args, Debug)]
pub(crate) struct AttachArgs {
    /// Id of the process
    pub(crate) process: String,

    /// Begin at this byte of each stream; by default only what comes from now on is shown
    #[arg(long, value_name = "OFFSET")]
    pub(crate) since: Option<u64>,

    /// Only watch; pass nothing on
    #[arg(long)]
    pub(crate) no_stdin: bool,
}
