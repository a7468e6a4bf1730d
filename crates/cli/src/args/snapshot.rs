//! `belljar snapshot`: the files of a sandbox, kept.

use std::ffi::OsString;

use clap::{Args, Subcommand};

use super::SandboxArgs;
use crate::settings::Key;

/// Keep the files of a sandbox, and make sandboxes from them
///
/// A snapshot has the files, directories and links below /workspace, /home/user and /output. It has no processes, no
/// memory, and nothing of the rest of a `--writable` root.
#[derive(Args, Debug)]
pub(crate) struct SnapshotArgs {
    #[command(subcommand)]
    pub(crate) command: SnapshotCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SnapshotCommand {
    /// Keep the files of a sandbox and print the snapshot's id
    Create {
        /// Name or id of the sandbox
        sandbox: String,
        /// A name that no other snapshot has
        #[arg(long, short, value_name = "NAME")]
        name: Option<String>,
        /// Attach a label (repeatable)
        #[arg(long, value_name = "KEY=VALUE")]
        label: Vec<String>,
        /// Keep this directory (repeatable) [default: /workspace, /home/user and /output]
        #[arg(long, value_name = "DIR")]
        path: Vec<String>,
        /// Print the snapshot as JSON
        #[arg(long)]
        json: bool,
    },
    /// List snapshots
    #[command(visible_alias = "ls")]
    List {
        /// Only of this sandbox
        #[arg(long, value_name = "SANDBOX")]
        sandbox: Option<String>,
        /// Only those with this label (repeatable)
        #[arg(long, value_name = "KEY=VALUE")]
        label: Vec<String>,
        /// For administrators: only this tenant's
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show one snapshot
    Inspect {
        /// Name or id
        snapshot: String,
        /// Print the snapshot as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a sandbox with the files of a snapshot and print its id
    ///
    /// The files are verified first. Template, limits, network, user and isolation class are those of the sandbox that
    /// they are from, unless options say otherwise.
    Restore(Box<SnapshotRestoreArgs>),
    /// Remove a snapshot; sandboxes made from it stay
    Rm {
        /// Name or id
        snapshot: String,
        /// Print what was removed as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct SnapshotRestoreArgs {
    /// Name or id of the snapshot
    pub(crate) snapshot: String,

    /// A name for the sandbox
    #[arg(long, short, value_name = "NAME", help_heading = "Sandbox")]
    pub(crate) name: Option<String>,

    #[command(flatten)]
    pub(crate) options: SandboxArgs,

    /// Print the sandbox as JSON
    #[arg(long, help_heading = "Output")]
    pub(crate) json: bool,
}

impl SnapshotArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            SnapshotCommand::Create { json, .. }
            | SnapshotCommand::List { json, .. }
            | SnapshotCommand::Inspect { json, .. }
            | SnapshotCommand::Rm { json, .. } => *json,
            SnapshotCommand::Restore(args) => args.json,
        }
    }

    pub(crate) fn flags(&self) -> Vec<(Key, OsString)> {
        match &self.command {
            SnapshotCommand::Restore(args) => args.options.flags(),
            _ => Vec::new(),
        }
    }
}
