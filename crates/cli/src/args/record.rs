//! Commands about what happened and who is told: `events`, `webhooks`, `audit`.

use clap::{Args, Subcommand};

/// Show what happened to sandboxes and processes
#[derive(Args, Debug)]
pub(crate) struct EventsArgs {
    /// Only of this sandbox, by name or id
    #[arg(long, value_name = "SANDBOX")]
    pub(crate) sandbox: Option<String>,

    /// Go on with what happens from now on
    #[arg(long, short)]
    pub(crate) follow: bool,

    /// Only events after this number; with --follow the default is from now on
    #[arg(long, value_name = "NUMBER")]
    pub(crate) since: Option<u64>,

    /// Only this kind, such as sandbox-ready or process-ended (repeatable)
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Vec<String>,

    /// Print each event as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Addresses that events are sent to
#[derive(Args, Debug)]
pub(crate) struct WebhooksArgs {
    #[command(subcommand)]
    pub(crate) command: WebhooksCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WebhooksCommand {
    /// Send events to an address, signed with a secret
    Add {
        url: String,
        /// A file with the secret that signs payloads; `-` reads standard input
        #[arg(long, value_name = "FILE")]
        secret_file: String,
        /// Only this kind, such as sandbox-ready or process-ended (repeatable)
        #[arg(long, value_name = "KIND")]
        kind: Vec<String>,
        /// Print the webhook as JSON
        #[arg(long)]
        json: bool,
    },
    /// List addresses, how far each has got, and its last failure
    List {
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Send nothing more to an address
    Rm {
        /// Id of the webhook
        webhook: String,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
}

/// Check and search the audit log: who did what to which sandbox
#[derive(Args, Debug)]
pub(crate) struct AuditArgs {
    #[command(subcommand)]
    pub(crate) command: AuditCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AuditCommand {
    /// Check that the log is as it was written
    ///
    /// Reads the files of the state directory directly; no server is needed. The exit status is 125 where a record was
    /// changed or is missing.
    Verify {
        /// A record that was seen before, as NUMBER:HASH: it must still be there
        #[arg(long, value_name = "NUMBER:HASH")]
        anchor: Option<String>,
        /// Print what was checked as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the last records
    Tail {
        /// How many
        #[arg(long, short = 'n', value_name = "NUMBER", default_value_t = 20)]
        last: u32,
        /// Go on with new ones
        #[arg(long, short)]
        follow: bool,
        /// Print each record as a line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the records that match
    Query(AuditQueryArgs),
}

#[derive(Args, Debug)]
pub(crate) struct AuditQueryArgs {
    /// About this sandbox, by id
    #[arg(long, value_name = "ID")]
    pub(crate) sandbox: Option<String>,

    /// By this caller
    #[arg(long, value_name = "ACTOR")]
    pub(crate) actor: Option<String>,

    /// Of this kind, such as sandbox.create or policy.exec
    #[arg(long, value_name = "ACTION")]
    pub(crate) action: Option<String>,

    /// Decisions of policies with this answer: allow, deny, audit or block
    #[arg(long, value_name = "VERDICT")]
    pub(crate) verdict: Option<String>,

    /// Decisions of this rule of a policy
    #[arg(long, value_name = "NAME")]
    pub(crate) rule: Option<String>,

    /// Decisions of the policy whose digest begins so
    #[arg(long, value_name = "DIGEST")]
    pub(crate) policy: Option<String>,

    /// With this outcome: ok, or an error code
    #[arg(long, value_name = "OUTCOME")]
    pub(crate) outcome: Option<String>,

    /// Not older than this time ago
    #[arg(long, value_name = "TIME")]
    pub(crate) since: Option<String>,

    /// Older than this time ago
    #[arg(long, value_name = "TIME")]
    pub(crate) until: Option<String>,

    /// Print each record as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl WebhooksArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            WebhooksCommand::Add { json, .. }
            | WebhooksCommand::List { json }
            | WebhooksCommand::Rm { json, .. } => *json,
        }
    }
}

impl AuditArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            AuditCommand::Verify { json, .. } | AuditCommand::Tail { json, .. } => *json,
            AuditCommand::Query(args) => args.json,
        }
    }
}
