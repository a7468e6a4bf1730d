//! Generates `crates/protocol/src/generated.rs` and `crates/protocol/schema/v1.txt` from `agent.proto`, and the page of
//! error codes from their registry.
//!
//! The results are checked in, so that building the product needs neither protoc nor this crate.

use crate::schema;
use anyhow::{Context, Result, bail};
use std::path::Path;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Write,
    Check,
}

pub(crate) fn run(root: &Path, mode: Mode) -> Result<()> {
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
    put(&frozen_path, &listing, mode)?;
    put(&root.join("docs/reference/errors.md"), &error_page(), mode)
}

fn error_page() -> String {
    let mut page = String::from(
        "# Error codes\n\nGenerated from `crates/codes` by `cargo run -p xtask -- codegen`. Codes are stable; the text of a message \
         may change.\n\n| code | meaning |\n|---|---|\n",
    );
    for code in belljar_codes::Code::ALL {
        page.push_str(&format!("| `{code}` | {} |\n", code.description().trim()));
    }
    page
}

const HEADER: &str =
    "// Generated from proto/agent.proto by `cargo run -p xtask -- codegen`; do not edit.\n";

/// Writes `content`, or in check mode fails when the file has anything else in it.
fn put(path: &Path, content: &str, mode: Mode) -> Result<()> {
    let current = std::fs::read_to_string(path).unwrap_or_default();
    if current == content {
        return Ok(());
    }
    match mode {
        Mode::Check => bail!("{} is stale; run `cargo run -p xtask -- codegen`", path.display()),
        Mode::Write => {
            std::fs::write(path, content).with_context(|| format!("write {}", path.display()))?;
            println!("wrote {}", path.display());
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_in_is_what_is_generated() {
        run(&crate::root(), Mode::Check).expect("generated files are fresh");
    }
}
