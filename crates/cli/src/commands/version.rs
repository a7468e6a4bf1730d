//! `belljar version`.

use serde::Serialize;

use super::Done;
use crate::args::VersionArgs;
use crate::failure::Failure;
use crate::output::{print, print_json};

#[derive(Serialize)]
struct VersionShape {
    version: &'static str,
    os: &'static str,
    arch: &'static str,
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) fn version(args: &VersionArgs) -> Result<Done, Failure> {
    if args.json {
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        print_json(&VersionShape { version: VERSION, os, arch })?;
    } else {
        print(&format!("belljar {VERSION}\n"))?;
    }
    Ok(Done::Success)
}
