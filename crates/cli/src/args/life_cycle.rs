//! Commands about sandboxes as such: `create`, `list`, `inspect`, `destroy`, `extend`, `pause`, `resume`, `proxy`.

use clap::{ArgGroup, Args};

use super::SandboxArgs;

/// Create a sandbox
///
/// Prints its id. The sandbox lives until it is destroyed or its lease ends.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// A name that no other sandbox has
    #[arg(long, short, value_name = "NAME", help_heading = "Sandbox")]
    pub(crate) name: Option<String>,

    /// Take the sandbox of that name if there is one
    #[arg(long, requires = "name", help_heading = "Sandbox")]
    pub(crate) get_or_create: bool,

    /// Attach a longer text to the sandbox (repeatable)
    #[arg(long, value_name = "KEY=VALUE", help_heading = "Sandbox")]
    pub(crate) metadata: Vec<String>,

    /// Give the same sandbox for the same request with the same key, for a day
    #[arg(long, value_name = "KEY", help_heading = "Sandbox")]
    pub(crate) idempotency_key: Option<String>,

    /// For administrators: whose sandbox it is
    #[arg(long, value_name = "TENANT", help_heading = "Sandbox")]
    pub(crate) tenant: Option<String>,

    #[command(flatten)]
    pub(crate) options: SandboxArgs,

    /// Print the sandbox as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,

    /// Tell which backend was chosen and what enforces each rule
    #[arg(long, help_heading = "Output")]
    pub(crate) explain: bool,
}

/// List sandboxes
#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// Only those with this label (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) label: Vec<String>,

    /// Only those with this metadata (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) metadata: Vec<String>,

    /// Only those in this state, also states of the past (repeatable)
    #[arg(long, value_name = "STATE", value_parser = ["creating", "ready", "paused", "destroying", "destroyed", "failed"])]
    pub(crate) state: Vec<String>,

    /// Only those whose name begins like this
    #[arg(long, value_name = "PREFIX")]
    pub(crate) name_prefix: Option<String>,

    /// For administrators: only this tenant's
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,

    /// Print a list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show one sandbox and what enforces its rules, or one process
#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// Name or id of a sandbox, or id of a process
    #[arg(value_name = "SANDBOX|PROCESS")]
    pub(crate) subject: String,

    /// Print the sandbox or process as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Add every rule of the sandbox with the mechanism that enforces it
    #[arg(long)]
    pub(crate) explain: bool,
}

/// Destroy sandboxes
///
/// Works in any state. A sandbox that does not exist is an error; the others are destroyed all the same.
#[derive(Args, Debug)]
pub(crate) struct DestroyArgs {
    /// Names or ids
    #[arg(required_unless_present = "all", value_name = "SANDBOX")]
    pub(crate) sandboxes: Vec<String>,

    /// Destroy all sandboxes of this state directory
    #[arg(long, conflicts_with = "sandboxes")]
    pub(crate) all: bool,

    /// Print what was destroyed as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Start the clocks of a sandbox's lease anew
///
/// What is not given stays as it is, counted from now on.
#[derive(Args, Debug)]
#[command(group(ArgGroup::new("clocks").required(true).multiple(true)))]
pub(crate) struct ExtendArgs {
    /// Name or id
    pub(crate) sandbox: String,

    /// End it when nobody used it for this long; 0 is never
    #[arg(long, value_name = "TIME", group = "clocks")]
    pub(crate) idle_timeout: Option<String>,

    /// End it after this long from now, used or not; 0 is never
    #[arg(long, value_name = "TIME", group = "clocks")]
    pub(crate) lease: Option<String>,

    /// Print the sandbox as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct PauseArgs {
    /// Name or id
    pub(crate) sandbox: String,

    /// Print the sandbox as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Use a sandbox through lines of JSON on standard input and output
///
/// Requests are `{"op":"ping"}`, `{"op":"exec","cmd":…,"timeout":…}`, `{"op":"read","path":…}`,
/// `{"op":"write","path":…,"content":…}` and `{"op":"destroy"}`. Each gets one line in answer; with `"stream":true` an
/// `exec` also gets a line for each piece of output. A request that fails is answered with
/// `{"op":"error","message":…}`. At the end of input the sandbox is destroyed.
#[derive(Args, Debug)]
pub(crate) struct ProxyArgs {
    /// A name for the sandbox
    #[arg(long, short, value_name = "NAME", help_heading = "Sandbox")]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) options: SandboxArgs,
}
