//! Commands about who may use a server: `keys`, `tenants`, `token`.

use clap::{Args, Subcommand};

/// Make, list and revoke API keys
#[derive(Args, Debug)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    pub(crate) command: KeysCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key and print its secret, which is shown only now
    Create(KeyCreateArgs),
    /// List keys, without their secrets
    List {
        /// Only of this tenant
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Revoke a key; it is refused from now on
    Revoke {
        /// Id of the key
        key: String,
        /// Print the key as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct KeyCreateArgs {
    /// What the key is for, in words
    #[arg(long, short, value_name = "NAME", default_value = "")]
    pub(crate) name: String,

    /// Whose key it is [default: default]
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,

    /// What it opens: everything, one tenant, or one sandbox [default: tenant, or sandbox with --sandbox]
    #[arg(long, value_name = "ROLE", value_parser = ["admin", "tenant", "sandbox"])]
    pub(crate) role: Option<String>,

    /// The only sandbox that it opens
    #[arg(long, value_name = "SANDBOX")]
    pub(crate) sandbox: Option<String>,

    /// What it may do [default: all that the role may]
    #[arg(long, value_name = "SCOPES", value_delimiter = ',', value_parser = ["read", "write", "exec", "files", "keys"])]
    pub(crate) scopes: Vec<String>,

    /// When it ends, from now
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<String>,

    /// Print key and secret as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Tenants: who shares a server without seeing each other
#[derive(Args, Debug)]
pub(crate) struct TenantsArgs {
    #[command(subcommand)]
    pub(crate) command: TenantsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TenantsCommand {
    /// Add a tenant
    Create(TenantArgs),
    /// List tenants with what they use
    List {
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one tenant
    Show {
        tenant: String,
        /// Print the tenant as JSON
        #[arg(long)]
        json: bool,
    },
    /// Change what a tenant may use; limits that are not given stay
    Set(TenantArgs),
    /// Remove a tenant that has no sandboxes left
    Rm {
        tenant: String,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
}

/// A tenant with its limits. `none` takes a limit away.
#[derive(Args, Debug)]
pub(crate) struct TenantArgs {
    /// Lower-case letters, digits and hyphens
    pub(crate) tenant: String,

    /// Sandboxes at once
    #[arg(long, value_name = "NUMBER")]
    pub(crate) sandboxes: Option<String>,

    /// Memory of all sandboxes together
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<String>,

    /// CPUs of all sandboxes together
    #[arg(long, value_name = "NUMBER")]
    pub(crate) cpus: Option<String>,

    /// Disk of all sandboxes together
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<String>,

    /// Commands that run at once
    #[arg(long, value_name = "NUMBER")]
    pub(crate) processes: Option<String>,

    /// Requests in a second
    #[arg(long, value_name = "NUMBER")]
    pub(crate) requests_per_second: Option<String>,

    /// Print the tenant as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Issue a signed token that opens exactly one sandbox, for a time
#[derive(Args, Debug)]
pub(crate) struct TokenArgs {
    /// Name or id
    pub(crate) sandbox: String,

    /// What it is for [default: api]
    #[arg(long = "for", value_name = "AUDIENCE", value_parser = ["api", "egress", "preview"])]
    pub(crate) audience: Option<String>,

    /// When it ends, from now; at most a day [default: 1h]
    #[arg(long, value_name = "TIME")]
    pub(crate) expires: Option<String>,

    /// Print the token and its end as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl KeysArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            KeysCommand::Create(args) => args.json,
            KeysCommand::List { json, .. } | KeysCommand::Revoke { json, .. } => *json,
        }
    }
}

impl TenantsArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            TenantsCommand::Create(args) | TenantsCommand::Set(args) => args.json,
            TenantsCommand::List { json }
            | TenantsCommand::Show { json, .. }
            | TenantsCommand::Rm { json, .. } => *json,
        }
    }
}
