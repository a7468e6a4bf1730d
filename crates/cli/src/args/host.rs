//! Commands about this host: `templates`, `probe`, `setup`, `doctor`.

use clap::Args;

/// List what a sandbox can start from
#[derive(Args, Debug)]
pub(crate) struct TemplatesArgs {
    /// Print a list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Try every backend and tell what works
///
/// Each backend, and each runtime of those that have several, runs a real tiny sandbox within a limit of time. What was
/// found is kept as long as the host stays the same. The exit status is 0 when one with isolation works.
#[derive(Args, Debug)]
pub(crate) struct ProbeArgs {
    /// Only this backend
    #[arg(long, value_name = "BACKEND")]
    pub(crate) backend: Option<String>,

    /// Try anew what is known already
    #[arg(long)]
    pub(crate) refresh: bool,

    /// Also print what would enforce each rule of a sandbox
    #[arg(long, conflicts_with = "json")]
    pub(crate) rules: bool,

    /// Print a list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Prepare this host and tell what is missing
///
/// Makes the state directory and tries the backends. Changes nothing else on the host: what needs an administrator is
/// printed as a command to run.
#[derive(Args, Debug)]
pub(crate) struct SetupArgs {
    /// Also write a configuration file with the defaults, unless there is one
    #[arg(long)]
    pub(crate) write_config: bool,

    /// Print the steps as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Explain what this host can and cannot enforce
///
/// Every gap comes with the command that closes it. The exit status is 0 when a backend with isolation works and, with
/// `--leaks`, nothing was left over.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// Look for processes, mounts, cgroups and files that no sandbox owns
    #[arg(long)]
    pub(crate) leaks: bool,

    /// Remove what `--leaks` finds
    #[arg(long, requires = "leaks")]
    pub(crate) fix: bool,

    /// Print the findings as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
