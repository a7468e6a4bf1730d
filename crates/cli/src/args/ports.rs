//! Commands about ports of sandboxes: `expose`, `ports`, `hide`, `forward`.

use clap::Args;

/// Show a port of a sandbox over HTTP
///
/// The address that is printed has a token in it, which lets a browser in for an hour; `--public` shows the port to
/// everybody. The server must listen on a port of its own (`belljar serve --listen`).
#[derive(Args, Debug)]
pub(crate) struct ExposeArgs {
    /// Name or id of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,

    /// The port at which something listens inside
    pub(crate) port: u16,

    /// Show it to everybody, without a token
    #[arg(long)]
    pub(crate) public: bool,

    /// How long the token is valid, at most a day [default: 1h]
    #[arg(long, value_name = "TIME", conflicts_with = "public")]
    pub(crate) expires: Option<String>,

    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// List the ports of a sandbox that are shown
#[derive(Args, Debug)]
pub(crate) struct PortsArgs {
    /// Name or id of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,

    /// Print a list as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show a port no longer
#[derive(Args, Debug)]
pub(crate) struct HideArgs {
    /// Name or id of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,

    pub(crate) port: u16,

    /// Print it as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Join ports of this machine's loopback to ports of a sandbox
///
/// Works whatever the sandbox's network is, and until it is interrupted. Any protocol over TCP passes.
#[derive(Args, Debug)]
pub(crate) struct ForwardArgs {
    /// Name or id of the sandbox
    #[arg(value_name = "SANDBOX")]
    pub(crate) sandbox: String,

    /// `LOCAL:REMOTE`, or one number for both; 0 as LOCAL takes any that is free
    #[arg(value_name = "[LOCAL:]REMOTE", required = true)]
    pub(crate) ports: Vec<String>,

    /// Print where it listens as lines of JSON
    #[arg(long)]
    pub(crate) json: bool,
}
