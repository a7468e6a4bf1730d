//! Commands about files inside sandboxes: `cp`, `files`.

use std::ffi::OsString;

use clap::{Args, Subcommand};

/// Copy files and directories into or out of a sandbox
///
/// One side is `SANDBOX:PATH`, the other a path of this machine, or `-` for standard input or output. Directories are
/// copied whole. Out of a sandbox nothing is written through a link: one in a file's place gives way, and links that
/// lead out of the copied directory are left out in both directions, like devices, pipes and sockets. Relative paths inside
/// start at the sandbox's working directory.
#[derive(Args, Debug)]
pub(crate) struct CpArgs {
    /// What to copy
    #[arg(value_name = "SRC")]
    pub(crate) source: OsString,

    /// Where to; in an existing directory it keeps its name
    #[arg(value_name = "DST")]
    pub(crate) target: OsString,

    /// Print what was copied as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Look at and change files inside a sandbox
///
/// Everything happens inside, with the rights of the sandbox's user. Relative paths start at the sandbox's working
/// directory.
#[derive(Args, Debug)]
pub(crate) struct FilesArgs {
    #[command(subcommand)]
    pub(crate) command: FilesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum FilesCommand {
    /// List a directory
    Ls {
        #[command(flatten)]
        at: Place,
        /// How many levels down
        #[arg(long, value_name = "LEVELS", default_value_t = 1)]
        depth: u32,
        /// Print a list as JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a file, or a part of it
    Cat {
        #[command(flatten)]
        at: Place,
        /// First byte
        #[arg(long, value_name = "BYTE", default_value_t = 0)]
        offset: u64,
        /// How many bytes
        #[arg(long, value_name = "BYTES")]
        length: Option<u64>,
    },
    /// Write a file from standard input
    Write {
        #[command(flatten)]
        at: Place,
        /// Add to the end of the file
        #[arg(long, conflicts_with = "new")]
        append: bool,
        /// Refuse to replace a file that exists
        #[arg(long)]
        new: bool,
        /// Make missing directories
        #[arg(long, short)]
        parents: bool,
        /// Permissions of a new file, in octal
        #[arg(long, value_name = "MODE")]
        mode: Option<String>,
        /// Print the file as JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what is known about a path
    Stat {
        #[command(flatten)]
        at: Place,
        /// Of what a symbolic link points to
        #[arg(long, short = 'L')]
        follow: bool,
        /// Print it as JSON
        #[arg(long)]
        json: bool,
    },
    /// Make a directory
    Mkdir {
        #[command(flatten)]
        at: Place,
        /// Make missing parents; one that exists is fine
        #[arg(long, short)]
        parents: bool,
        /// Print the directory as JSON
        #[arg(long)]
        json: bool,
    },
    /// Move a file or directory
    Mv {
        #[command(flatten)]
        from: Place,
        /// Where to
        to: String,
        /// Replace what is there
        #[arg(long)]
        replace: bool,
        /// Print the file as JSON
        #[arg(long)]
        json: bool,
    },
    /// Copy a file or directory inside the sandbox
    Cp {
        #[command(flatten)]
        from: Place,
        /// Where to
        to: String,
        /// With everything below
        #[arg(long, short)]
        recursive: bool,
        /// Replace what is there
        #[arg(long)]
        replace: bool,
        /// Print what was copied as JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove a file or directory
    Rm {
        #[command(flatten)]
        at: Place,
        /// With everything below
        #[arg(long, short)]
        recursive: bool,
        /// Print what was done as JSON
        #[arg(long)]
        json: bool,
    },
    /// Change permissions
    Chmod {
        #[command(flatten)]
        at: Place,
        /// In octal, such as 644
        mode: String,
        /// Print the file as JSON
        #[arg(long)]
        json: bool,
    },
    /// Tell changes below a path as they happen
    Watch {
        #[command(flatten)]
        at: Place,
        /// Also in directories below
        #[arg(long, short)]
        recursive: bool,
        /// Print each change as a line of JSON
        #[arg(long)]
        json: bool,
    },
    /// Find files by name and content
    Search(SearchArgs),
    /// Write a directory as an archive to standard output
    Archive {
        #[command(flatten)]
        at: Place,
        #[arg(long, value_name = "FORMAT", default_value = "tar", value_parser = ["tar", "tar.gz", "zip"])]
        format: String,
    },
    /// Unpack an archive from standard input into a directory
    ///
    /// Entries that would leave the directory, devices, and archives that grow beyond bounds are refused.
    Extract {
        #[command(flatten)]
        at: Place,
        #[arg(long, value_name = "FORMAT", default_value = "tar", value_parser = ["tar", "tar.gz", "zip"])]
        format: String,
        /// Print what was unpacked as JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args, Debug)]
pub(crate) struct SearchArgs {
    #[command(flatten)]
    pub(crate) at: Place,

    /// Names or paths that match, such as '*.py' or 'src/**/test_*'
    #[arg(long, value_name = "GLOB")]
    pub(crate) name: Option<String>,

    /// Lines that contain this
    #[arg(long, value_name = "TEXT")]
    pub(crate) content: Option<String>,

    /// The content is a regular expression
    #[arg(long, requires = "content")]
    pub(crate) regex: bool,

    /// Capitals do not matter
    #[arg(long, short)]
    pub(crate) ignore_case: bool,

    /// How many levels down
    #[arg(long, value_name = "LEVELS")]
    pub(crate) depth: Option<u32>,

    /// Stop after this many
    #[arg(long, value_name = "NUMBER")]
    pub(crate) max: Option<u32>,

    /// Print each hit as a line of JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A path inside a sandbox.
#[derive(Args, Debug)]
pub(crate) struct Place {
    /// Name or id
    pub(crate) sandbox: String,

    /// Path inside the sandbox
    pub(crate) path: String,
}

impl FilesArgs {
    pub(crate) fn json(&self) -> bool {
        match &self.command {
            FilesCommand::Ls { json, .. }
            | FilesCommand::Write { json, .. }
            | FilesCommand::Stat { json, .. }
            | FilesCommand::Mkdir { json, .. }
            | FilesCommand::Mv { json, .. }
            | FilesCommand::Cp { json, .. }
            | FilesCommand::Rm { json, .. }
            | FilesCommand::Chmod { json, .. }
            | FilesCommand::Watch { json, .. }
            | FilesCommand::Extract { json, .. } => *json,
            FilesCommand::Search(args) => args.json,
            FilesCommand::Cat { .. } | FilesCommand::Archive { .. } => false,
        }
    }
}
