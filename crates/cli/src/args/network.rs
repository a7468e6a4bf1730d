//! `belljar network` and `belljar approvals`.

use clap::{Args, Subcommand};

/// See and change what a sandbox may reach
///
/// Changes hold at once: connections that are no longer allowed are cut. They stay with the sandbox.
#[derive(Args, Debug)]
pub(crate) struct NetworkArgs {
    #[command(subcommand)]
    pub(crate) command: NetworkCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum NetworkCommand {
    /// Show what a sandbox may reach
    Show {
        /// Name or id of the sandbox
        sandbox: String,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Replace what a sandbox may reach
    Set {
        /// Name or id of the sandbox
        sandbox: String,
        /// How much network there is: none, allowlist, full
        #[arg(long, value_name = "MODE")]
        network: Option<String>,
        /// Allow a host, in place of those allowed so far (repeatable)
        #[arg(long, value_name = "HOST")]
        allow: Vec<String>,
        /// Allow addresses that are not public, in place of those allowed so far (repeatable)
        #[arg(long, value_name = "CIDR")]
        allow_cidr: Vec<String>,
        /// Let what nothing allows wait so long for `belljar approvals`; 0: not at all
        #[arg(long, value_name = "TIME")]
        network_ask: Option<String>,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Allow more hosts
    Allow(NetworkHostsArgs),
    /// Deny hosts, also where a wider entry or the mode would allow them
    Deny(NetworkHostsArgs),
    /// Show what a sandbox wanted to reach and what came of it
    Log {
        /// Name or id of the sandbox; by id also of one that has ended
        sandbox: String,
        /// Only what was denied
        #[arg(long)]
        denied: bool,
        /// Only the last so many
        #[arg(long, value_name = "COUNT")]
        last: Option<u32>,
        /// Then what comes, until interrupted
        #[arg(long, short)]
        follow: bool,
        /// Print a JSON object per line
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct NetworkHostsArgs {
    /// Name or id of the sandbox
    pub(crate) sandbox: String,
    /// `example.com`, `*.example.com`, `example.com:8443`
    #[arg(required = true, value_name = "HOST")]
    pub(crate) hosts: Vec<String>,
    /// Print the network as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Answer for connections that wait to be allowed (--network-ask)
#[derive(Args, Debug)]
pub(crate) struct ApprovalsArgs {
    #[command(subcommand)]
    pub(crate) command: ApprovalsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ApprovalsCommand {
    /// List what waits
    #[command(visible_alias = "ls")]
    List {
        /// Only of this sandbox
        #[arg(long, value_name = "SANDBOX")]
        sandbox: Option<String>,
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Allow something that waits
    Allow {
        /// Id of what waits
        approval: String,
        /// For how much: once, sandbox, always
        ///
        /// `sandbox` is every connection to that host and port as long as the doors stay open; `always` is kept with the
        /// sandbox.
        #[arg(long = "for", value_name = "HOW", default_value = "once")]
        how: String,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Deny something that waits
    Deny {
        /// Id of what waits
        approval: String,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
}

impl NetworkArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            NetworkCommand::Allow(args) | NetworkCommand::Deny(args) => args.json,
            NetworkCommand::Show { json, .. }
            | NetworkCommand::Set { json, .. }
            | NetworkCommand::Log { json, .. } => *json,
        }
    }
}

impl ApprovalsArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            ApprovalsCommand::List { json, .. }
            | ApprovalsCommand::Allow { json, .. }
            | ApprovalsCommand::Deny { json, .. } => *json,
        }
    }
}
