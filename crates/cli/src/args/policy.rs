//! Commands about policies: `policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Check, explain, compare, keep and learn policy documents
///
/// FILE is a document in YAML or JSON; what it extends is read too. A directory stands for the documents named
/// belljar.yaml or governance.yaml in it and in the directories above it, up to --root.
#[derive(Args, Debug)]
pub(crate) struct PolicyArgs {
    #[command(subcommand)]
    pub(crate) command: PolicyCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Read documents and tell every mistake with its line and column
    Check {
        #[arg(required = true, value_name = "FILE")]
        files: Vec<PathBuf>,
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what counts after `extends` and folders
    Show {
        #[command(flatten)]
        place: PlaceArgs,
        /// Print the document as JSON
        #[arg(long)]
        json: bool,
    },
    /// Ask the questions of a file and compare the answers; exit status 1 if one differs
    Test {
        #[command(flatten)]
        place: PlaceArgs,
        /// Questions with the answers that are meant
        cases: PathBuf,
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell which rule answers a question, why, and which would be next
    Explain(ExplainArgs),
    /// Tell what becomes possible and what no longer is
    Diff {
        old: PathBuf,
        new: PathBuf,
        /// Exit with status 1 if something becomes possible
        #[arg(long)]
        fail_if_wider: bool,
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Keep a policy on the server; each change is a new version
    Put {
        name: String,
        #[command(flatten)]
        place: PlaceArgs,
        /// For administrators: whose it is
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Print the version as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show a policy that the server keeps
    Get {
        /// NAME or NAME@VERSION
        name: String,
        /// For administrators: whose it is
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// List the policies that the server keeps
    List {
        /// Every version of this one
        name: Option<String>,
        /// For administrators: whose they are
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a policy from the server; sandboxes that run under it go on
    Rm {
        /// NAME or NAME@VERSION
        name: String,
        /// For administrators: whose it is
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print the smallest document that allows what a sandbox did, for review
    ///
    /// The sandbox was created with --policy-record, or with a policy. By id it may have ended.
    Learn {
        /// Name or id
        sandbox: String,
        /// Print the document and what could not be learned as JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell where Python code shells out or hides what it does; a hint
    ///
    /// A hint for a reader, not a wall: code that wants to hide from it can. The exit status is 0 whatever is found.
    Scan {
        #[arg(value_name = "FILE.py")]
        file: PathBuf,
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
}

/// A document, or the documents of a directory and those above it.
#[derive(Args, Debug)]
pub(crate) struct PlaceArgs {
    pub(crate) file: PathBuf,

    /// Where documents of directories begin; without it, only the directory itself counts
    #[arg(long, value_name = "DIR")]
    pub(crate) root: Option<PathBuf>,

    /// The path that the question is about, for documents with a scope; relative to the root
    #[arg(long, value_name = "PATH")]
    pub(crate) at: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    pub(crate) place: PlaceArgs,

    /// What is asked for, such as exec, code or tool: the field `action`
    #[arg(long)]
    pub(crate) action: Option<String>,

    /// A field of the question; JSON where it is JSON, else text (repeatable)
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) field: Vec<String>,

    /// A file with fields as a JSON or YAML map
    #[arg(long, value_name = "FILE")]
    pub(crate) context: Option<PathBuf>,

    /// Ask about the network instead: may this host be reached?
    #[arg(long, value_name = "HOST[:PORT]", conflicts_with_all = ["action", "field", "context"])]
    pub(crate) host: Option<String>,

    /// With --host: the method of a request
    #[arg(long, requires = "host")]
    pub(crate) method: Option<String>,

    /// With --host: the path of a request
    #[arg(long, requires = "host")]
    pub(crate) path: Option<String>,

    /// Print the explanation as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

impl PolicyArgs {
    /// Whether the command is about what a server keeps or knows.
    pub(crate) fn needs_server(&self) -> bool {
        matches!(
            self.command,
            PolicyCommand::Put { .. }
                | PolicyCommand::Get { .. }
                | PolicyCommand::List { .. }
                | PolicyCommand::Rm { .. }
                | PolicyCommand::Learn { .. }
        )
    }

    pub(crate) fn json(&self) -> bool {
        match &self.command {
            PolicyCommand::Check { json, .. }
            | PolicyCommand::Show { json, .. }
            | PolicyCommand::Test { json, .. }
            | PolicyCommand::Scan { json, .. }
            | PolicyCommand::Put { json, .. }
            | PolicyCommand::Get { json, .. }
            | PolicyCommand::List { json, .. }
            | PolicyCommand::Rm { json, .. }
            | PolicyCommand::Learn { json, .. }
            | PolicyCommand::Diff { json, .. } => *json,
            PolicyCommand::Explain(args) => args.json,
        }
    }
}
