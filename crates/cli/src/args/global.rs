//! Options that every command takes.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;

#[derive(Args, Debug, Default)]
#[command(next_help_heading = "Global options")]
pub(crate) struct GlobalArgs {
    /// Where Belljar keeps its state [env: BELLJAR_STATE_DIR]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state_dir: Option<PathBuf>,

    /// Configuration file to read instead of the user's own [env: BELLJAR_CONFIG]
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,

    /// Print no notes, only results and errors
    #[arg(long, short, global = true)]
    pub(crate) quiet: bool,

    /// Server to talk to: a URL, unix:PATH, or embedded [env: BELLJAR_SERVER]
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) server: Option<OsString>,

    /// The key for that server [env: BELLJAR_API_KEY]
    #[arg(long, global = true, value_name = "KEY")]
    pub(crate) api_key: Option<OsString>,
}
