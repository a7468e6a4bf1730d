//! Commands about workspace layers: `diff`, `apply`, `discard`.

use clap::Args;

#[derive(Args, Debug)]
pub(crate) struct LayerArgs {
    /// Name or id of a sandbox made with `--workspace-mode overlay`
    pub(crate) sandbox: String,

    /// Print the changes as JSON
    #[arg(long)]
    pub(crate) json: bool,
}
