//! `secrets`: what requests of sandboxes are given on the host.

use clap::{Args, Subcommand};

/// Secrets that requests of sandboxes are given, and sandboxes never see
#[derive(Args, Debug)]
pub(crate) struct SecretsArgs {
    #[command(subcommand)]
    pub(crate) command: SecretsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SecretsCommand {
    /// Keep a secret under a name, in the place of an earlier one
    ///
    /// The value is read from standard input, a file or a variable, never from the command line, where everybody on
    /// this machine could see it. A line end after it does not belong to it. It cannot be read again.
    Set(SecretSetArgs),
    /// List names and times, not values
    List {
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a secret; requests that need it fail from now on
    Rm {
        name: String,
        /// Whose it is, for administrators [default: default]
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct SecretSetArgs {
    /// Letters, digits, `_`, `-` and `.`
    pub(crate) name: String,

    /// `-`, for standard input [default: standard input, unless it is a terminal]
    #[arg(value_name = "-", conflicts_with_all = ["from_file", "env"])]
    pub(crate) input: Option<String>,

    /// Read it from this file
    #[arg(long, value_name = "FILE", conflicts_with = "env")]
    pub(crate) from_file: Option<std::path::PathBuf>,

    /// Read it from this variable of this command's environment
    #[arg(long, value_name = "VARIABLE")]
    pub(crate) env: Option<String>,

    /// Whose it is, for administrators [default: default]
    #[arg(long, value_name = "TENANT")]
    pub(crate) tenant: Option<String>,

    /// Print its name and times as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl SecretsArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            SecretsCommand::Set(args) => args.json,
            SecretsCommand::List { json } | SecretsCommand::Rm { json, .. } => *json,
        }
    }
}
