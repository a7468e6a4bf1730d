//! Commands about Belljar itself: `config`, `completions`, `version`.

use clap::{Args, Subcommand};
use clap_complete::Shell;

/// Show settings and where they come from
#[derive(Args, Debug)]
pub(crate) struct ConfigArgs {
    #[command(subcommand)]
    pub(crate) command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Show every setting, its value and its origin
    ///
    /// Flags win over environment variables, those over the user's configuration file, that over the system's.
    Show {
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
}

impl ConfigArgs {
    pub(crate) fn json(&self) -> bool {
        let ConfigCommand::Show { json } = self.command;
        json
    }
}

/// Print completions for a shell
#[derive(Args, Debug)]
pub(crate) struct CompletionsArgs {
    pub(crate) shell: Shell,
}

/// Print the version
#[derive(Args, Debug)]
pub(crate) struct VersionArgs {
    /// Print the version as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
