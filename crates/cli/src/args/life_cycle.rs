//! Commands about sandboxes as such: `create`, `list`, `inspect`, `destroy`.

use clap::Args;

use super::SandboxArgs;

/// Create a sandbox
///
/// Prints its id. The sandbox lives until it is destroyed or its lease ends.
#[derive(Args, Debug)]
pub(crate) struct CreateArgs {
    /// A name that no other sandbox has
    #[arg(long, short, value_name = "NAME", help_heading = "Sandbox")]
    pub(crate) name: Option<String>,

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
    /// Print a list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show one sandbox and what enforces its rules
#[derive(Args, Debug)]
pub(crate) struct InspectArgs {
    /// Name or id
    pub(crate) sandbox: String,

    /// Print the sandbox as JSON
    #[arg(long)]
    pub(crate) json: bool,

    /// Add every rule with the mechanism that enforces it
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
