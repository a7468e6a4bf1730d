//! `crates/protocol`: what host and agent say to each other.

use super::{Mode, put};
use crate::schema;
use anyhow::{Context, Result};
use std::path::Path;

const HEADER: &str =
    "// Generated from proto/agent.proto by `cargo run -p xtask -- codegen`; do not edit.\n";

pub(super) fn run(root: &Path, mode: Mode) -> Result<()> {
    let protocol = root.join("crates/protocol");
    let descriptors = protox::compile(["agent.proto"], [protocol.join("proto")])
        .context("compile agent.proto")?;

    let frozen_path = protocol.join("schema/v1.txt");
    let frozen = std::fs::read_to_string(&frozen_path).unwrap_or_default();
    let listing = schema::listing(&descriptors);
    schema::check_compatible(&frozen, &listing)?;

    let modules = prost_build::Config::new()
        // Ordered maps make encoding deterministic, and need no random hasher in the agent.
        .btree_map(["."])
        .generate(
            descriptors
                .file
                .into_iter()
                .map(|file| (prost_build::Module::from_protobuf_package_name(file.package()), file))
                .collect(),
        )
        .context("generate Rust types")?;
    let code = modules.into_values().collect::<Vec<_>>().concat();

    put(&protocol.join("src/generated.rs"), &format!("{HEADER}{code}"), mode)?;
    put(&frozen_path, &listing, mode)
}
